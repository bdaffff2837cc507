"""DeepSeek V4's metadata and tensors: what is refused, and which caches a context needs."""

from dataclasses import replace
from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.files.tensor_types import TensorType
from py_engine.plan.indexer import IndexShape
from py_engine.plan.kernels import Device
from py_engine.plan.rope import Factors, RopeSpec
from py_engine.planner import PlanOptions, make_plan
from tests.support.changed_headers import changed, config, plan
from tests.support.cpu_models import header

NAME = "latent/deepseek4.F16"


def test_layers_without_compressed_keys_rotate_otherwise() -> None:
    """llama.cpp takes YaRN's magnitude back, and neither scales these layers nor gives them the other base."""
    compressed, _, plain = config("latent/deepseek4-yarn.F16").ropes
    assert plain == RopeSpec(16, 10000.0, original_context=64, factors=Factors.NONE)
    assert (compressed.base, compressed.scaling, compressed.factor) == (40000.0, "yarn", 8.0)
    assert compressed.magnitude == pytest.approx(1)


def test_windows_hold_what_compresses_keys() -> None:
    """The window of 9 positions is shorter than those of a key."""
    shapes = config(NAME).shapes
    assert [shape.reach for shape in shapes] == [9, 9, 128, 9]
    assert {shape.span for shape in shapes} == {128}
    assert [shape.index for shape in shapes[:2]] == [None, IndexShape(2, 64, 4 * 256, 12, False, pool=4)]
    assert {shape.span for shape in config(NAME, **{"attention.compress_ratios": [0, 4, 0, 4]}).shapes} == {9}


@pytest.mark.parametrize(("n_ctx", "indexed"), [(12, False), (13, True)])
def test_an_index_of_compressed_keys_is_planned_for_longer_contexts_only(n_ctx: int, indexed: bool) -> None:
    """In a context of 12 positions there are three keys, as many as it chooses."""
    options = PlanOptions(n_ctx, 4, "q8_0")
    made = make_plan(header("latent/deepseek4-top3.F16"), Device(software=True), options)
    kernels = {op.kernel for ops in made.lists.values() for op in ops}
    assert ("index_choose" in kernels) == indexed
    assert ("compressed.index.0" in made.buffers) == indexed
    assert made.buffers["compressed.0"].dtype == made.buffers["window.0"].dtype == "f16"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"attention.compress_ratios": [0, 4, 128]}, "corrupt_header"),
        ({"attention.compress_ratios": [0, 4, 64, 4]}, "corrupt_header"),
        ({"attention.compress_ratios": 4}, "corrupt_header"),
        ({"attention.compress_ratios": None}, "missing_metadata"),
        ({"attention.sliding_window": 0}, "corrupt_header"),
        ({"attention.output_group_count": 3}, "unsupported_architecture"),
        ({"attention.output_lora_rank": 10}, "unsupported_architecture"),
        ({"attention.indexer.top_k": None}, "missing_metadata"),
        ({"rope.dimension_count": 6}, "unsupported_architecture"),
        ({"hyper_connection.count": 3}, "unsupported_architecture"),
        ({"expert_gating_func": 2}, "unsupported_architecture"),
        ({"expert_gating_func": None}, "unsupported_architecture"),
        ({"expert_count": None}, "unsupported_architecture"),
        ({"attention.compress_rope_freq_base": None}, "missing_metadata"),
        ({"attention.value_length": 36}, "unsupported_architecture"),
    ],
)
def test_metadata_that_is_refused(changes: dict[str, Any], code: str) -> None:
    with pytest.raises(WispError) as error:
        plan(changed(NAME, changes))
    assert error.value.code == code


@pytest.mark.parametrize(
    "tensor",
    [
        *("blk.0.ffn_gate_tid2eid.weight", "blk.1.exp_probs_b.bias", "blk.0.attn_sinks.weight", "output.weight"),
        *("blk.1.attn_compressor_ape.weight", "blk.2.attn_compressor_norm.weight", "blk.3.ffn_down_shexp.weight"),
        *("blk.0.ffn_gate_exps.weight", "blk.3.ffn_gate_inp.weight", "output_hc_scale.weight"),
    ],
)
def test_a_missing_tensor_is_named(tensor: str) -> None:
    found = header(NAME)
    tensors = {name: info for name, info in found.tensors.items() if name != tensor}
    with pytest.raises(WispError, match=tensor.replace(".", r"\.")) as error:
        plan(replace(found, tensors=tensors))
    assert error.value.code == "missing_tensor"


def test_a_table_of_experts_has_whole_numbers() -> None:
    found, name = header(NAME), "blk.0.ffn_gate_tid2eid.weight"
    for other in ({"type": TensorType.F32}, {"shape": (3, found.tensors[name].shape[1])}):
        tensors = found.tensors | {name: replace(found.tensors[name], **other)}
        with pytest.raises(WispError, match="must be I32") as error:
            plan(replace(found, tensors=tensors))
        assert error.value.code == "bad_tensor_shape"
