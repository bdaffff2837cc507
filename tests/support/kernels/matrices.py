"""Emulates subgroup matrices: rewrites them into plain WGSL in f32, because no software GPU offers them.

The kernels that use them then run everywhere with the same tiles and threads; only the multiplication itself needs a
real GPU. A left or right matrix becomes its location (offset, column-major, pitch); one that a variable holds
becomes all its elements. A result becomes the elements that one thread holds: every LANES-th of the SIDE x SIDE.
"""

import re
from dataclasses import replace

from py_engine.plan.kernels import Shader

_LOAD = re.compile(r"(let (\w+) =|(\w+) =) subgroupMatrixLoad<(\w+)>\(&(\w+), (.*), (true|false), (\w+)\);")
_STORE = re.compile(r"subgroupMatrixStore\(&(\w+), (.*), (\w+), false, (\w+)\);")
_MULTIPLY = re.compile(r"subgroupMatrixMultiplyAccumulate\((\w+), (\w+), (\w+)\)")


def emulated(shader: Shader) -> Shader:
    """The shader without the extension, with f32 in place of f16."""
    where: dict[str, str] = {}  # matrix -> the array that it was loaded from
    functions: dict[str, str] = {}

    def rewritten(line: str) -> str:
        if line.startswith(("enable f16", "enable chromium", "diagnostic", "alias Right")):
            return ""
        if line.startswith("alias Left"):
            return "alias Left = array<f32, SIDE * SIDE>;"
        if line.startswith("alias Result"):
            return "alias Result = array<f32, SIDE * SIDE / LANES>;"
        if load := _LOAD.search(line):
            start, left, result, kind, array, offset, column_major, pitch = load.groups()
            if kind != "Result" and result:
                where[result] = "held"
                functions[f"hold_{array}"] = _loader(array, f"hold_{array}", "Left", "SIDE * SIDE", "i")
                return _LOAD.sub(f"{result} = hold_{array}({offset}, {pitch}, t % LANES);", line)
            if kind != "Result":
                where[left] = array
                return _LOAD.sub(f"{start} vec3u({offset}, {int(column_major == 'true')}u, {pitch});", line)
            functions[f"load_{array}"] = _loader(
                array, f"load_{array}", "Result", "SIDE * SIDE / LANES", "lane + i * LANES"
            )
            return _LOAD.sub(f"{result} = load_{array}({offset}, {pitch}, t % LANES);", line)
        if store := _STORE.search(line):
            array, offset, value, pitch = store.groups()
            functions[f"store_{array}"] = _storer(array)
            return _STORE.sub(f"store_{array}({offset}, {value}, {pitch}, t % LANES);", line)
        if multiply := _MULTIPLY.search(line):
            a, b, c = multiply.groups()
            name = f"multiply_{where[a]}_{where[b]}"
            functions[name] = _multiplier(name, where[a], where[b])
            return _MULTIPLY.sub(f"{name}({a}, {b}, {c}, t % LANES)", line)
        return line

    lines = [rewritten(line) for line in shader.code.splitlines()]
    code = "\n".join([*lines, *functions.values()])
    code = code.replace("bitcast<vec4<f16>>", "halves_of").replace("bitcast<vec2<f16>>", "unpack2x16float")
    if "halves_of" in code:
        code += "\nfn halves_of(w: vec2u) -> vec4f { return vec4f(unpack2x16float(w.x), unpack2x16float(w.y)); }"
    code = re.sub(r"\bf16\b", "f32", code)
    return replace(shader, label=f"{shader.label} emulated", code=code)


def _loader(array: str, name: str, kind: str, count: str, element: str) -> str:
    return f"""fn {name}(offset: u32, pitch: u32, lane: u32) -> {kind} {{
  var out: {kind};
  for (var i = 0u; i < {count}; i++) {{
    let e = {element};
    out[i] = {array}[offset + e / SIDE * pitch + e % SIDE];
  }}
  return out;
}}"""


def _storer(array: str) -> str:
    return f"""fn store_{array}(offset: u32, value: Result, pitch: u32, lane: u32) {{
  for (var i = 0u; i < SIDE * SIDE / LANES; i++) {{
    let e = lane + i * LANES;
    {array}[offset + e / SIDE * pitch + e % SIDE] = value[i];
  }}
}}"""


def _multiplier(name: str, left: str, right: str) -> str:
    held = left == "held"
    of_a = "a[m * SIDE + k]" if held else f"f32({left}[a.x + select(m * a.z + k, k * a.z + m, a.y == 1u)])"
    return f"""fn {name}(a: {"Left" if held else "vec3u"}, b: vec3u, sum: Result, lane: u32) -> Result {{
  var out = sum;
  for (var i = 0u; i < SIDE * SIDE / LANES; i++) {{
    let m = (lane + i * LANES) / SIDE;
    let n = (lane + i * LANES) % SIDE;
    for (var k = 0u; k < SIDE; k++) {{
      let at_b = b.x + select(k * b.z + n, n * b.z + k, b.y == 1u);
      out[i] += {of_a} * f32({right}[at_b]);
    }}
  }}
  return out;
}}"""
