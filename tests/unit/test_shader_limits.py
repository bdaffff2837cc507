"""No op of a plan takes more of a device than it has: storage buffers, threads, and memory of a workgroup."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import kernels
from py_engine.plan.adapters import Adapters
from py_engine.plan.kernels import Device, Shader
from py_engine.plan.plan import Plan
from py_engine.planner import PlanOptions, make_plan
from tests.support.cpu_models import GOLDEN, header
from tests.support.header_adapters import NOT_ADAPTED, adapters_of
from tests.support.shader_limits import Taken, taken
from tools.goldens import golden_models, golden_projectors, text_models_with_media
from tools.selection import in_turn
from tools.shaders import _media_width

LEAST = Device()  # what WebGPU guarantees: eight storage buffers, 256 threads, 16 KiB
HALVES = Device(f16=True, subgroup=8, dot8=True)  # the same limits on a GPU with all features but matrices
MATRICES = replace(HALVES, matrix=16, max_workgroup_storage=32 << 10)
DEVICES = {"least": (LEAST, "f32"), "halves": (HALVES, "q8_0"), "matrices": (MATRICES, "f16")}
# models with the ops that bind most: factors of experts, scales of matrices, biases, T5's relative positions
BINDING = (
    "gemma4/gemma4-moe.F16", "gpt_oss/gpt-oss.MXFP4_MOE", "llama/llama-scales.NVFP4", "qwen/qwen3moe-scales.NVFP4",
    "encoder_decoder/t5.F16",
)  # fmt: skip
ALL = [*golden_models(), *text_models_with_media(), *golden_projectors()]


def plans_of(model: Header, device: Device, kv_type: str, *, adapted: bool) -> Iterator[Plan]:
    """A model's plan for a device, and, if it can have any, that with adapters."""
    options = PlanOptions(512, 512, kv_type, media_width=_media_width(model), whole_media=True, mtp=True)
    yield plan_of(model, device, options)
    if adapted and (adapters := adapters_of(model)).pairs:
        yield plan_of(model, device, replace(options, adapters=adapters))


def plan_of(model: Header, device: Device, options: PlanOptions) -> Plan:
    try:
        return make_plan(model, device, options)
    except WispError:  # its rows do not fit a q8_0 cache
        return make_plan(model, device, replace(options, kv_type="f16" if device.f16 else "f32"))


Known = dict[tuple[object, ...], str]  # kernel and params, also their types -> what the shader has too much, in words


def too_much(plan: Plan, device: Device, known: Known | None = None) -> set[str]:
    """The ops of a plan that take too much, in words. `known`: the ops of plans for the device that were looked at."""
    known, found = {} if known is None else known, set[str]()
    for op in chain(*plan.lists.values()):
        key = op.kernel, *((name, type(value), value) for name, value in op.params.items())
        if key not in known:
            more = taken(kernels.expand(op.kernel, op.params, device)).above(device)
            known[key] = f"{op.kernel} {more}" if more else ""
        found.add(known[key])
    return found - {""}


def named(path: Path) -> str:
    return str(path.relative_to(GOLDEN)).removesuffix(".gguf")


@pytest.mark.parametrize("kind", DEVICES)
@pytest.mark.parametrize("name", BINDING)
def test_ops_that_bind_most_fit_a_device(name: str, kind: str) -> None:
    device, kv_type = DEVICES[kind]
    for plan in plans_of(header(name), device, kv_type, adapted=NOT_ADAPTED not in name):
        assert too_much(plan, device) == set()


@pytest.mark.slow
@pytest.mark.parametrize("kind", DEVICES)
def test_ops_of_all_goldens_fit_a_device(kind: str) -> None:
    """Each golden on one of the devices in turn; WISP_ALL=1: on all."""
    device, kv_type = DEVICES[kind]
    found, known = dict[str, set[str]](), Known()  # most ops of a plan are another plan's, too
    for path in (path for at, path in enumerate(ALL) if kind in in_turn(at, [*DEVICES])):
        model = header(named(path))
        adapted = NOT_ADAPTED not in named(path) and not named(path).endswith(".mmproj")
        more = [too_much(plan, device, known) for plan in plans_of(model, device, kv_type, adapted=adapted)]
        found[named(path)] = set().union(*more)
    assert len(found) >= len(ALL) // len(DEVICES) > 100
    assert {name: more for name, more in found.items() if more} == {}


@pytest.mark.parametrize("kind", DEVICES)
@pytest.mark.parametrize("name", ["qwen/qwen3moe.F16", "gemma4/gemma4-moe.F16"])
def test_adapters_of_experts_in_bytes_fit_or_are_refused(name: str, kind: str) -> None:
    """Their matrices have two buffers each."""
    model, (device, kv_type) = header(name), DEVICES[kind]
    found = Adapters([1.0])
    for tensor, pairs in adapters_of(model).pairs.items():
        pair = replace(pairs[0], a=replace(pairs[0].a, type=Q.Q8_0), b=replace(pairs[0].b, type=Q.Q8_0))
        if "exps" in tensor:
            found.pairs[tensor] = [pair]
    options = PlanOptions(512, 512, kv_type, adapters=found)
    if "gemma4" in name:  # whose experts have factors
        with pytest.raises(WispError, match=r"lora\[0\]: This device cannot bind .* Use an adapter in F16"):
            make_plan(model, device, options)
    else:
        assert too_much(make_plan(model, device, options), device) == set()


def test_what_a_shader_takes_is_counted() -> None:
    code = """
const WG: u32 = 64u;
const WIDE = PITCH + max(2u, COUNT / 4u);
const PITCH = select(8u, 16u, WG == 64u);
const COUNT = 0x10u;
alias Word = vec4<f16>;
struct Row {
  a: vec3f,
  b: u32,
  c: f32,
}
var<workgroup> rows: array<array<Row, 2>, WIDE>; // 20 * 2 * 32 bytes
var<workgroup> words: array<Word, 3>; // 24 bytes, rounded up to 32
var<workgroup> unused: array<f32, 4096>;
@compute @workgroup_size(WG, 4u)
fn main() { rows[0][0].b = u32(words[0].x); }
"""
    bindings = {"p": "uniform", "x": "storage, read", "y": "storage, read_write"}
    assert taken(Shader("k", code, bindings, {})) == Taken(2, 256, 20 * 2 * 32 + 32)
    assert Taken(9, 256, 16385).above(LEAST) == {"storage_buffers": (9, 8), "bytes": (16385, 16384)}
