"""Expand wgsl/*.wgsl to the text of one specialised shader.

Directives, each on a line of its own:

    #param NAME            a required parameter; becomes `const NAME` (u32 or f32), or plain text if it is a string
    #include "file.wgsl"   relative to wgsl/; ${NAME} is replaced first
    #include "file.wgsl" with a=b c=d   with these names for its own, so that a kernel may include two alike
    #include "file.wgsl" as _2          once more: all that it declares ends with _2, and so do #params of its own
    #if EXPR / #else / #endif   EXPR is a Python expression over the params
    #text NAME             the text of a string parameter, as it is
    #read_write NAME...    these read-only bindings are bound as read_write; NAME may end with * for any end
    #for i in EXPR / #endfor    repeat the lines between with ${i} = 0 ... EXPR - 1, or, for "A, B", with A ... B - 1.
                                Arrays stay in registers only if the loop over them is certainly unrolled.
    @bind var<...> name: type;  the next free binding of group 0

Text after `//` on a #param line describes it. F16 (0 or 1) and SG (smallest subgroup size, 0: no subgroups) come from
the device. GROUPS_PER_THREAD (groups of weights that a thread reads at a time), TOKENS (lib/row_sums.wgsl) and
HEADS_EACH (norm_rope_append.wgsl) default to 1; HALVES (1: the weights are also dequantised to f16), PACKED and
PREFIXES (lib/segments.wgsl), MEDIA (lib/media.wgsl), WHOLE_MEDIA (lib/visible.wgsl), MROPE and TURNS
(lib/rope_turns.wgsl), LOW_RANK (rope_append.wgsl, matvec_small_batch.wgsl), LOW_RANK_OWN_ROWS
(matvec_small_batch.wgsl), ADDED (quantize_rows.wgsl, rope_append.wgsl), BESIDE (lib/low_rank_input.wgsl), SUMS32
(matmul.wgsl, attention.wgsl), NOPE and Q16 (lib/attention_inputs.wgsl), CACHED (lib/matmul_inputs.wgsl), PART
(lib/attention_split.wgsl), INDEXED (attention.wgsl, attention_decode.wgsl), NORMS and UP_TO (attention_decode.wgsl),
SPLIT (attention.wgsl, attention_matrix.wgsl), MERGED (matvec.wgsl, head_products.wgsl), INT8 (lib/matmul_inputs.wgsl),
IN_ORDER (lib/rounded_rows.wgsl), ROUNDED_BEFORE (matvec.wgsl), SECOND, FACTOR and X_STRIDE (lib/matvec_inputs.wgsl),
SCALES (lib/matrix_scale.wgsl), PINNED (matmul_matrix.wgsl), ANCHOR (lib/sequence.wgsl), PLAIN and RESIDUAL
(mtp_input.wgsl), FROM and MUTUAL (lib/attention_split.wgsl) default to 0.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType
from typing import Any

from py_engine.errors import WispError
from py_engine.plan.shared_constants import KERNEL_PARAMS

WGSL = Path(__file__).parent.parent.parent / "wgsl"
BIND = re.compile(r"@bind var<(uniform|storage, read|storage, read_write)> (\w+)")
OWN = "wisp_"  # may begin the names of a kernel with a caller's text, which cannot have it
NAME = re.compile(r"my_[a-z0-9_]+")  # of a registered kernel: Wisp's own never begin so
_registered: dict[str, str] = {}  # the texts of kernels that are not in wgsl/, by file name
PINNED = re.compile(r"^#read_write (.*)\n", re.M)
WRITABLE = "storage, read_write"
FIELD = re.compile(r"^\s*(\w+): (u32|f32|i32),", re.M)
DECLARED = re.compile(r"^(?:fn|struct|const|alias|(?:@bind )?var<[^>]*>) (\w+)", re.M)  # in a module

DIRECTIVES = ("#if", "#else", "#endif", "#for", "#param", "#text", "#include", "#read_write")
Step = tuple[str, str, list[str]]  # a directive, the rest of its line and a #for's lines; "", "" and lines without any

# values of #params that most kernels leave as they are
DEFAULTS = {"GROUPS_PER_THREAD": 1, "TOKENS": 1, "SHARE": 1, "SPAN": 1, "SLOTS": 1, "HEADS_EACH": 1} | dict.fromkeys(
    (
        "HALVES",
        "PACKED",
        "PREFIXES",
        "MEDIA",
        "WHOLE_MEDIA",
        "MROPE",
        "LOW_RANK",
        "LOW_RANK_OWN_ROWS",
        "ADDED",
        "BESIDE",
        "SUMS32",
        "TURNS",
        "AFTER",
        "ALONE",
        "X16",
        "INT8",
        "IN_ORDER",
        "GROUPS",
        "SHARING",
        "MATRIX",
        "PER_KEY",
        "SIGMOID",
        "NOPE",
        "CACHED",
        "CHUNKED",
        "WEIGHTED",
        "LIMIT",
        "UP_LIMIT",
        "RELATIVE",
        "LOOPED",
        "Q16",
        "PART",
        "NORMS",
        "UP_TO",
        "SPLIT",
        "MERGED",
        "POST_THREADS",
        "SECOND",
        "FACTOR",
        "FACTORS",
        "X_STRIDE",
        "SCALES",
        "PINNED",
        "INDEXED",
        "TABLED",
        "COMPRESSED",
        "ANCHOR",
        "PLAIN",
        "ROUNDED_BEFORE",
        "RESIDUAL",
        "FROM",
        "MUTUAL",
    ),
    0,
)


@dataclass(frozen=True)
class Device:
    """The properties of a device that kernel variants depend on. Comments name the WebGPU limits."""

    f16: bool = False
    half_bits: bool = True  # the WGSL compiler has bitcast<vec2<f16>>; Firefox's has not
    subgroup: int = 0  # smallest subgroup size; 0: no subgroups
    max_binding: int = 128 << 20  # maxStorageBufferBindingSize
    max_buffer: int = 256 << 20  # maxBufferSize
    max_workgroup_storage: int = 16384  # maxComputeWorkgroupStorageSize
    max_threads: int = 256  # maxComputeInvocationsPerWorkgroup
    max_storage_buffers: int = 8  # maxStorageBuffersPerShaderStage
    dot8: bool = False  # round activations to bytes if the weights are integers: faster on GPUs
    int8: bool = True  # the same in prompts, where there is dot8 and no subgroup matrices
    matrix: int = 0  # side of the subgroup matrices (f16, f32 sums); 0: not supported
    software: bool = False  # WebGPU emulated on the CPU: smaller batches keep it responsive
    tiles: tuple[tuple[str, tuple[int, ...]], ...] = ()  # measured to be the fastest, by key


@dataclass(frozen=True)
class Shader:
    """An expanded kernel: its text, bindings (name -> access, in order) and Params fields (name -> type).

    `pinned`: bindings that #read_write has bound as read_write, and that the kernel only reads.
    """

    label: str
    code: str
    bindings: dict[str, str]
    fields: dict[str, str]
    pinned: frozenset[str] = frozenset()

    @property
    def kernel(self) -> str:
        """The kernel's name."""
        return re.split("[ @]", self.label, maxsplit=1)[0]

    @property
    def registered(self) -> bool:
        """Whether the kernel is a user's."""
        return "@" in self.label.partition(" ")[0]

    def writes(self, name: str) -> bool:
        """Whether the kernel writes to what it binds under a name."""
        return self.bindings.get(name) == WRITABLE and name not in self.pinned

    def pack(self, consts: Mapping[str, int | float]) -> bytes:
        """The bytes of the Params struct, padded to a multiple of 16."""
        if set(consts) != set(self.fields):
            raise KeyError(f"{self.label}: Params has {sorted(self.fields)}, the op has {sorted(consts)}")
        code = {"u32": "I", "i32": "i", "f32": "f"}
        raw = struct.pack("<" + "".join(code[t] for t in self.fields.values()), *(consts[n] for n in self.fields))
        return raw + bytes(-len(raw) % 16)


def struct_fields(file: str, struct_name: str) -> dict[str, str]:
    """The fields of a struct in wgsl/`file`: name -> "u32", "i32" or "f32", in order."""
    return _fields(_source(file), struct_name)


def _fields(text: str, struct_name: str) -> dict[str, str]:
    found = re.search(rf"struct (?:{OWN})?{struct_name} \{{(.*?)\}}", text, re.S)
    return {m[1]: m[2] for m in FIELD.finditer(found[1])} if found else {}


def register(kernel: str, text: str) -> None:
    """Add a kernel that is not in wgsl/. WispError invalid_value for a name that a file there has."""
    if not NAME.fullmatch(kernel) or (WGSL / f"{kernel}.wgsl").exists():
        what = f"A kernel cannot be called {kernel!r}: take a new name of lower-case letters, digits and underscores."
        raise WispError(f"{what} It must begin with my_.", "invalid_value")
    _registered[f"{kernel}.wgsl"] = text
    for cached in (_source, _source_lines, _source_steps, has_param, _expanded):
        cached.cache_clear()


@cache
def _source(name: str) -> str:
    return _registered[name] if name in _registered else (WGSL / name).read_text()


@cache
def _source_lines(name: str) -> list[str]:
    """The lines of a file; of Wisp's own without comments.

    What is stored of a kernel by its text (its proof, the browser's compiled code) is then found after a change of
    comments alone.
    """
    lines = _source(name).splitlines()
    if name in _registered:  # errors name the lines of the caller's text
        return lines
    code = (line if line.lstrip().startswith("#") else line.partition("//")[0].rstrip() for line in lines)
    return [line for line in code if line]


@lru_cache(4096)
def _compiled(expression: str) -> CodeType:
    return compile(expression, "a directive of a kernel", "eval")


def _value(expression: str, values: Mapping[str, int | float | str]) -> Any:
    """The value of a directive's expression over the params."""
    return eval(_compiled(expression), {"__builtins__": {}}, values)


@cache
def has_param(file: str, param: str) -> bool:
    """Whether a kernel, or a file that it includes, declares a #param."""
    text = _source(f"{file}.wgsl")
    included = re.findall(r'^#include "([^"$]+)\.wgsl"', text, re.M)
    return bool(re.search(rf"^#param {param}\b", text, re.M)) or any(has_param(name, param) for name in included)


def facts(device: Device) -> tuple[int, int, int]:
    """All that expand() asks for of a device: the params F16, HALF_BITS and SG."""
    return int(device.f16), int(device.half_bits), device.subgroup


def expand(kernel: str, params: Mapping[str, int | float | str], device: Device) -> Shader:
    """Specialise wgsl/<kernel>.wgsl. KeyError for a missing or unknown param."""
    types = tuple(map(type, params.values()))  # 1 and 1.0 are equal but expand differently
    return _expanded(kernel, tuple(params.items()), types, *facts(device))


@lru_cache(1024)  # the layers of a model share their shaders
def _expanded(
    kernel: str, given: tuple[tuple[str, int | float | str], ...], types: tuple[type, ...],
    f16: int, half_bits: int, subgroup: int,
) -> Shader:  # fmt: skip
    params = dict(given)
    values = {"F16": f16, "HALF_BITS": half_bits, "SG": subgroup, **DEFAULTS, **KERNEL_PARAMS, **params}
    used: set[str] = set()
    lines: list[str] = []
    _expand(f"{kernel}.wgsl", values, used, lines)
    if unknown := set(params) - used:
        raise KeyError(f"{kernel}.wgsl has no #param {sorted(unknown)}")
    body, pinned = _pinned("\n".join(lines))
    bindings = {m[2].removeprefix(OWN): m[1] for m in BIND.finditer(body)}
    numbers = iter(range(len(bindings)))
    body = re.sub(r"@bind ", lambda _: f"@group(0) @binding({next(numbers)}) ", body)
    fields = _fields(body, "Params")
    head = re.findall(r"^(?:enable|diagnostic).*", body, re.M)
    body = re.sub(r"^(?:enable|diagnostic).*", "", body, flags=re.M)
    enables = ["enable f16;"] if values["F16"] and "F16" in used else []
    enables += ["enable subgroups;"] if values["SG"] and "SG" in used else []
    registered = _registered.get(f"{kernel}.wgsl")  # another text of this name is another shader
    label = kernel if registered is None else f"{kernel}@{_hash(registered)}"
    label += "".join(f" {k}={_short(values[k])}" for k in sorted(used))
    return Shader(label, "\n".join([*enables, *sorted(head, reverse=True), body]), bindings, fields, pinned)


def _pinned(body: str) -> tuple[str, frozenset[str]]:
    """The text with its #read_write bindings, without these lines, and the names of these bindings."""
    pinned: set[str] = set()
    for names in PINNED.findall(body):
        name = "|".join(re.escape(name).replace(r"\*", r"\w*") for name in names.split())
        only_read = re.compile(rf"@bind var<storage, read> ({name}):")
        pinned |= set(only_read.findall(body))
        body = only_read.sub(rf"@bind var<{WRITABLE}> \1:", body)
    return PINNED.sub("", body), frozenset(pinned)


def _short(value: int | float | str) -> int | float | str:
    """A param as labels have it: of a text, a hash, because errors show labels."""
    return _hash(value) if isinstance(value, str) and "\n" in value else value


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def _expand(name: str, values: dict[str, int | float | str], used: set[str], out: list[str]) -> None:
    _run(name, _source_steps(name), values, used, out)


@cache
def _source_steps(name: str) -> list[Step]:
    return _steps(_source_lines(name))


@lru_cache(1024)
def _copy_steps(text: str) -> list[Step]:
    """The steps of one pass of a #for."""
    return _steps(text.split("\n"))


def _steps(lines: list[str]) -> list[Step]:
    """Lines as expansions run them, so that each expansion need not look at every line."""
    steps: list[Step] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        word, _, rest = line.strip().partition(" ") if "#" in line else ("", "", "")
        if word == "#for":
            end = _end_of_for(lines, at)
            steps.append((word, rest, lines[at:end]))
            at = end + 1
        elif word in DIRECTIVES:
            steps.append((word, rest, []))
        elif steps and not steps[-1][0]:
            steps[-1][2].append(line)
        else:
            steps.append(("", "", [line]))
    return steps


def _run(name: str, steps: list[Step], values: dict[str, int | float | str], used: set[str], out: list[str]) -> None:
    live = [True]
    for word, rest, lines in steps:
        if word == "#if":
            live.append(live[-1] and bool(_value(rest, values)))
        elif word == "#else":
            live[-1] = live[-2] and not live[-1]
        elif word == "#endif":
            live.pop()
        elif not live[-1]:
            continue
        elif not word:
            out += lines
        elif word == "#for":
            variable, _, count = rest.partition(" in ")
            given = _value(count, values)
            body = "\n".join(lines)
            for i in range(*given) if isinstance(given, tuple) else range(int(given)):
                copy = body.replace(f"${{{variable}}}", str(i))
                if "#" in body:
                    _run(name, _copy_steps(copy), values, used, out)
                else:
                    out += copy.split("\n")
        elif word == "#param":
            param = rest.split()[0]
            if param not in values:
                raise KeyError(f"{name}: #param {param} was not given")
            if param not in used:
                used.add(param)
                if not isinstance(value := values[param], str):
                    out.append(f"const {param}: {'f32' if isinstance(value, float) else 'u32'} = {value};")
        elif word == "#text":
            out += str(values[rest]).splitlines()
        elif word == "#read_write":
            out.append(f"{word} {rest}")
        else:
            out += _included(rest, values, used)


def _included(rest: str, values: dict[str, int | float | str], used: set[str]) -> list[str]:
    """The lines of an included file. `rest`: what follows #include."""
    quoted, _, names = rest.partition(" with ")
    quoted, _, end = quoted.partition(" as ")
    path = quoted.strip().strip('"')
    if "$" in path:
        path = re.sub(r"\$\{(\w+)\}", lambda m: str(values[m[1]]), path)
    included: list[str] = []
    if end:
        return _copied(path, end, values, used)
    _expand(path, values, used, included)
    if not names or not included:
        return included
    text = "\n".join(included)
    for old, new in (pair.split("=") for pair in names.split()):
        text = re.sub(rf"{old}\b(?<!\w{old})", new, text)  # begins with the letters, which `re` looks for quickly
    return text.split("\n")


def _copied(path: str, end: str, values: dict[str, int | float | str], used: set[str]) -> list[str]:
    """The lines of a file that is included once more, under names that end with `end`."""
    own = {name.removesuffix(end): value for name, value in values.items() if name.endswith(end)}
    declared, included = used - own.keys(), list[str]()
    _expand(path, values | own, declared, included)
    used |= {name + end if name in own else name for name in declared}
    text = "\n".join(included)
    if not (names := "|".join(DECLARED.findall(text))):
        raise ValueError(f"{path} declares nothing that could be included once more")
    return re.sub(rf"\b(?:{names})\b", rf"\g<0>{end}", text).splitlines()


def _end_of_for(lines: list[str], at: int) -> int:
    depth = 1
    while depth:
        word = lines[at].strip().partition(" ")[0]
        depth += (word == "#for") - (word == "#endfor")
        at += 1
    return at - 1
