"""Files that lack a tensor which their architecture needs, and files that may lack one."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from bench import shapes
from py_engine import planner
from py_engine.errors import WispError
from py_engine.files.convolutions import PROJECTOR
from py_engine.files.gguf_header import Header, parse
from py_engine.models import families
from py_engine.models.projectors.required import NEEDED
from py_engine.models.projectors.required import check_tensors as check_projector
from py_engine.models.required import LAYERS, OUTSIDE, check_tensors
from py_engine.plan.kernels import Device

GOLDEN = Path(__file__).parents[1] / "golden"
PROJECTORS = sorted((GOLDEN / "vision").glob("*.mmproj.gguf"))
ADAPTERS = GOLDEN / "lora"


def header(name: str) -> Header:
    return parse((GOLDEN / f"{name}.gguf").read_bytes(), None)


@cache
def models() -> list[Header]:
    """The headers of all goldens that are whole models."""
    found = []
    for path in sorted(GOLDEN.glob("*/*.gguf")):
        read = parse(path.read_bytes(), None)
        if read.tensors and path not in PROJECTORS and path.parent != ADAPTERS and "split.count" not in read.metadata:
            found.append(read)
    return found


def without(found: Header, *tensors: str) -> Header:
    return replace(found, tensors={name: info for name, info in found.tensors.items() if name not in tensors})


def plan(found: Header) -> None:
    planner.make_plan(found, Device(), planner.PlanOptions(64, 16, "f16"))


def test_every_golden_has_what_its_architecture_needs() -> None:
    for found in models():
        check_tensors(found, families.family(found).Config.from_gguf(found))


def test_models_that_lack_any_tensor_of_the_tables_are_refused() -> None:
    """Every entry of the tables, where a golden has the tensor: in the first and in the last layer that needs it."""
    checked = set()
    for found in models():
        name, cfg = found.architecture, families.family(found).Config.from_gguf(found)
        removed = [(tensor, tensor) for tensor, names in OUTSIDE.items() if name in names]
        for need in LAYERS:
            if name in need.architectures:
                layers = [f"blk.{i}." for i in range(need.first, cfg.block_count)]
                having = [b for b in layers if not need.beside or b + need.beside in found.tensors]
                removed += [(b + need.tensor, need.tensor) for b in {*having[:1], *having[-1:]}]
        for tensor, entry in removed:
            assert tensor in found.tensors, (name, tensor)
            with pytest.raises(WispError, match=f"no tensor {tensor},") as error:
                check_tensors(without(found, tensor), cfg)
            assert error.value.code == "missing_tensor"
            checked.add((name, entry))
    assert len(checked) > 750


def test_projectors_that_lack_any_tensor_of_the_table_are_refused() -> None:
    names = {name for names in NEEDED for name in names.split()}
    for path in PROJECTORS:
        found = parse(path.read_bytes(), None)
        kinds = [str(value) for key, value in found.metadata.items() if key.endswith("projector_type")]
        check_projector(found, kinds)
        for pattern, types in NEEDED.items():
            for name in pattern.split() if set(kinds) & set(types.split()) else []:
                for tensor in [
                    t for t in found.tensors if t == name or t == name.replace("N", t.split("blk.")[-1][:1])
                ]:
                    names.discard(name)
                    with pytest.raises(WispError, match=tensor) as error:
                        check_projector(without(found, tensor), kinds)
                    assert error.value.code == "missing_tensor"
    assert not names, "a golden has every tensor of the table"


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("llama/llama.F16", "blk.1.attn_norm.weight"), ("llama/llama.F16", "blk.0.ffn_gate.weight"),
        ("llama/llama.F16", "output_norm.weight"), ("gemma4/gemma4.F16", "rope_freqs.weight"),
        ("gpt_oss/gpt-oss.F16", "blk.1.attn_sinks.weight"), ("experts/step35.F16", "blk.0.ffn_gate.weight"),
        ("experts/step35.F16", "blk.1.ffn_gate_shexp.weight"), ("latent/kimi-k3.F16", "blk.1.ffn_gate_shexp.weight"),
        ("latent/glm5-next.F16", "blk.1.ffn_up_shexp.weight"), ("latent/glm5-next.F16", "blk.3.exp_probs_b.bias"),
        ("qwen35/qwen4exp.F16", "blk.2.attn_q_norm.weight"), ("qwen35/qwen4exp.F16", "blk.0.ffn_down_shexp.weight"),
        ("vision/glm5v.mmproj", "v.blk.0.ffn_gate.weight"), ("vision/qwen2vl.mmproj", "mm.0.bias"),
    ],
)  # fmt: skip
def test_a_plan_needs_them(name: str, tensor: str) -> None:
    found = header(name)
    plan(found)
    assert tensor in found.tensors
    with pytest.raises(WispError, match=f"no tensor {tensor},") as error:
        plan(without(found, tensor))
    assert error.value.code == "missing_tensor"


@pytest.mark.parametrize(
    ("name", "tensors"),
    [
        ("llama/llama.F16", ["output.weight"]), ("llama/llama3-rope.F16", ["rope_freqs.weight"]),
        ("llama/llama-bias.F16", ["blk.1.attn_q.bias", "blk.0.attn_output.bias"]),
        ("llama/mixtral.F16", ["blk.1.ffn_gate_exps.weight"]), ("qwen/qwen2.F16", ["blk.0.attn_k.bias"]),
        ("gemma4/gemma4.F16", ["blk.0.layer_output_scale.weight"]),
        ("stablelm/stablelm.F16", ["blk.1.ffn_norm.weight"]),
        ("phi3/phi3-longrope-long.F16", ["rope_factors_long.weight", "rope_factors_short.weight"]),
        ("experts/step35.F16", ["blk.2.exp_probs_b.bias"]), ("embedding/bert.F16", ["token_types.weight"]),
        ("vision/minicpmv4_6.mmproj", []), ("vision/minicpmv4_6.plain.mmproj", []),
    ],
    ids=str,
)  # fmt: skip
def test_tensors_that_llama_cpp_does_not_need_may_be_missing(name: str, tensors: list[str]) -> None:
    found = header(name)
    assert {*tensors} <= found.tensors.keys()
    plan(without(found, *tensors))


def test_a_caller_s_module_decides_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    found = without(header("llama/llama.F16"), "blk.0.attn_norm.weight")
    monkeypatch.setitem(families._registered, "llama", families.family(found))
    plan(found)


@pytest.mark.parametrize("name", sorted(shapes.SHAPES))
def test_shapes_of_benchmarks_have_them(name: str) -> None:
    found = shapes.header(shapes.SHAPES[name], "Q4_K_M")
    if found.architecture != PROJECTOR:
        check_tensors(found, families.family(found).Config.from_gguf(found))
