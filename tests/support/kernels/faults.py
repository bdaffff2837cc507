"""Random faults in the text of kernels: what a compiler or a GPU may do wrong, as one change of a line."""

import random
import re
from dataclasses import dataclass, replace

from py_engine.plan.kernels import Shader

# (name, what to look for in a line of a function, what to put in its place; a list: one of them)
CHANGES: list[tuple[str, str, list[str]]] = [
    ("constant", r"(?<![\w.])(\d+)u\b", ["{plus}u", "{minus}u"]),
    ("factor", r"(?<![\w.])(\d+\.\d+)(?![\w.])", ["({0} * 1.25)", "({0} + 0.125)"]),
    ("barrier", r"^\s*workgroupBarrier\(\);$", [""]),
    ("bound", r" < ", [" <= "]),
    ("bound", r" >= ", [" > "]),
    ("bound", r" <= ", [" < "]),
    ("operand", r"(?<=[\w\])]) - (?=[\w(])", [" + "]),
    ("operand", r"(?<=[\w\])]) \+ (?=[\w(])", [" - "]),
    ("operand", r"(?<=[\w\])]) \* (?=[\w(])", [" + "]),
    ("operand", r"(?<=[\w\])]) % (?=[\w(])", [" / "]),
    ("operand", r"(?<=[\w\])]) / (?=[\w(])", [" % "]),
    ("function", r"\bmin\(", ["max("]),
    ("function", r"\bmax\(", ["min("]),
    ("component", r"\.x\b", [".y"]),
    ("component", r"\.y\b", [".x"]),
    ("sum", r"(?<= )\+= ", ["= "]),
    ("statement", r"^\s*[\w\[\]. %*+]+ [-+*]?= [^;]*;$", [""]),
    ("condition", r" && ", [" || "]),
]
OUTSIDE = re.compile(r"^\s*(//|@|fn |struct |const |alias |enable |var<|diagnostic|\}|let count_of_bindings)")


@dataclass(frozen=True)
class Fault:
    """One change of a kernel's text: line `at` becomes `line`."""

    kind: str
    at: int
    before: str
    line: str

    def apply(self, shader: Shader) -> Shader:
        """The kernel with the fault."""
        lines = shader.code.splitlines()
        lines[self.at] = self.line
        return replace(shader, code="\n".join(lines))


def live_lines(code: str) -> set[int]:
    """The lines of functions that `main` calls, itself or through others."""
    bodies: dict[str, list[int]] = {}
    lines, name = code.splitlines(), ""
    for at, line in enumerate(lines):
        if found := re.match(r"fn (\w+)", line):
            name = found[1]
        if name:
            bodies.setdefault(name, []).append(at)
        if line == "}":
            name = ""
    live, waiting = set[str](), ["main"]
    while waiting:
        function = waiting.pop()
        live.add(function)
        called = {word for at in bodies[function] for word in re.findall(r"(\w+)\(", lines[at].partition("//")[0])}
        waiting += sorted((called & bodies.keys()) - live)
    return {at for function in live for at in bodies[function]}


def in_open_loops(code: str) -> set[int]:
    """The lines of `while` and `loop` blocks, where a fault may never end."""
    found, depth = set[int](), 0
    for at, line in enumerate(code.splitlines()):
        if depth or re.match(r"\s*(while\b|loop\b)", line):
            found.add(at)
            depth += line.count("{") - line.count("}")
    return found


def candidates(shader: Shader) -> dict[str, list[tuple[int, re.Match[str], list[str]]]]:
    """The places of a kernel where a fault of each kind is possible."""
    found: dict[str, list[tuple[int, re.Match[str], list[str]]]] = {}
    live = live_lines(shader.code) - in_open_loops(shader.code)
    for at, text in enumerate(shader.code.splitlines()):
        if at not in live:
            continue
        line = text.partition("//")[0].rstrip()
        if OUTSIDE.match(line):
            continue
        for kind, pattern, changed in CHANGES:
            if line.lstrip().startswith("for (") and kind != "bound":
                continue  # it might never end
            found.setdefault(kind, []).extend((at, match, changed) for match in re.finditer(pattern, line))
    return {kind: places for kind, places in found.items() if places}


def random_fault(shader: Shader, source: random.Random) -> Fault:
    """A fault of a random kind at a random place."""
    places = candidates(shader)
    kind = source.choice(sorted(places))
    at, match, changed = source.choice(places[kind])
    if match.group().startswith("0.0"):
        changed = changed[1:]
    number = int(match[1]) if kind == "constant" else 0
    text = source.choice(changed).format(*match.groups(), plus=number + 1, minus=number - 1 if number else 1)
    line = match.string[: match.start()] + text + match.string[match.end() :]
    return Fault(kind, at, shader.code.splitlines()[at].strip(), line)
