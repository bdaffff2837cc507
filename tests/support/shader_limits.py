"""What a shader takes of the limits of a device: storage buffers, threads, and memory of its workgroups."""

import re
from functools import cache
from typing import Any, NamedTuple

from py_engine.plan.kernels import Device, Shader

SCALARS = {"f32": 4, "u32": 4, "i32": 4, "f16": 2, "bool": 4}
# Each begins with letters, which `re` looks for quickly; it would try "^" at each character.
CONST = re.compile(r"\nconst (\w+)(?:: [^=]+)? = ([^;]+);")
ALIAS = re.compile(r"\nalias (\w+) = ([^;]+);")
STRUCT = re.compile(r"\nstruct (\w+) \{(.*?)\}", re.S)
WORKGROUP = re.compile(r"\nvar<workgroup> (\w+): ([^;]+);")
THREADS = re.compile(r"@workgroup_size\(([^)]+)\)")


class Taken(NamedTuple):
    """What a shader takes."""

    storage_buffers: int
    threads: int  # of a workgroup
    bytes: int  # of a workgroup's memory

    def above(self, device: Device) -> "dict[str, tuple[int, int]]":
        """What is more than a device has, and what it has."""
        limits = device.max_storage_buffers, device.max_threads, device.max_workgroup_storage
        pairs = zip(self._fields, self, limits, strict=True)
        return {name: (taken, limit) for name, taken, limit in pairs if taken > limit}


class Constants(dict[str, Any]):
    """The values of a text's constants, by name; each is computed when it is needed, in any order."""

    def __init__(self, code: str) -> None:
        super().__init__(min=min, max=max, select=lambda no, yes, which: yes if which else no)
        self.texts = dict(CONST.findall(code))

    def __missing__(self, name: str) -> Any:
        self[name] = self.value(self.texts[name])
        return self[name]

    def value(self, text: str) -> Any:
        """The value of an expression."""
        plain = re.sub(r"\b(0x[\da-f]+|\d[\d.]*(?:e-?\d+)?)[uf]?\b", r"\1", re.sub(r"\b[ui]32\(", "(", text))
        return eval(plain.replace("/", "//"), {"__builtins__": {}}, self)


class Types:
    """The sizes of the types that a shader's text declares."""

    def __init__(self, code: str) -> None:
        self.constants = Constants(code)
        self.aliases = dict(ALIAS.findall(code))
        self.structs = {name: re.findall(r"^\s*\w+: (.+?),?$", fields, re.M) for name, fields in STRUCT.findall(code)}

    def layout(self, text: str) -> tuple[int, int]:
        """A type's size and alignment."""
        text = text.strip()
        if text in SCALARS:
            return (SCALARS[text],) * 2
        if text in self.aliases:
            return self.layout(self.aliases[text])
        if text in self.structs:
            size = most = 0
            for field in self.structs[text]:
                length, step = self.layout(field)
                size, most = -(-size // step) * step + length, max(most, step)
            return -(-size // most) * most, most
        if found := re.fullmatch(r"vec([234])([fhui])", text):
            return self._vector(int(found[1]), 2 if found[2] == "h" else 4)
        if found := re.fullmatch(r"vec([234])<(\w+)>", text):
            return self._vector(int(found[1]), SCALARS[found[2]])
        if found := re.fullmatch(r"atomic<(\w+)>", text):
            return self.layout(found[1])
        if found := re.fullmatch(r"array<(.+?), ((?:[^,<>(]|\([^()]*\))+)>", text):
            size, step = self.layout(found[1])
            return -(-size // step) * step * int(self.constants.value(found[2])), step
        raise ValueError(f"unknown type {text}")

    def _vector(self, count: int, size: int) -> tuple[int, int]:
        return count * size, (4 if count == 3 else count) * size


def taken(shader: Shader) -> Taken:
    """What a shader takes."""
    return Taken(sum(kind != "uniform" for kind in shader.bindings.values()), *_of_workgroup(shader.code))


@cache
def _of_workgroup(code: str) -> tuple[int, int]:
    """Threads of a workgroup, and bytes of its memory."""
    code = f"\n{code}"
    types, threads, used = Types(code), 1, 0
    for size in THREADS.findall(code)[0].split(","):
        threads *= types.constants.value(size)
    for name, text in WORKGROUP.findall(code):
        if len(re.findall(rf"{name}\b(?<!\w{name})", code)) > 1:
            used += -(-types.layout(text)[0] // 16) * 16  # Dawn rounds each variable up
    return threads, used
