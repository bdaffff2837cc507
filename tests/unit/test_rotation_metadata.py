"""How metadata say that positions rotate and scores are scaled: by architecture, as in llama.cpp."""

from math import log
from typing import Any

import pytest

from py_engine import planner
from py_engine.errors import WispError
from py_engine.files.gguf_header import TensorInfo
from py_engine.files.tensor_types import TensorType
from py_engine.models.common import rope_factors
from py_engine.plan.kernels import Device
from py_engine.plan.lists import PREFILL
from tests.support.changed_headers import changed, config, plan
from tests.support.cpu_models import header

YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}


@pytest.mark.parametrize(
    ("name", "magnitude"),
    [("gemma/gemma3.F16", 1.5), ("plamo/plamo3.F16", 1.5), ("experts/mimo2.F16", 1.5), ("olmo2/olmo3.F16", 1.0)],
)
def test_positions_in_a_window_are_not_scaled(name: str, magnitude: float) -> None:
    """But the attention factor is for all layers; OLMo 3 has it in layers without a window only."""
    found = config(name, **LINEAR, **{"rope.scaling.attn_factor": 1.5})
    kinds = {
        (window > 0, rope.scaling, rope.magnitude) for window, rope in zip(found.windows, found.ropes, strict=True)
    }
    assert kinds == {(True, "none", magnitude), (False, "linear", 1.5)}


def test_a_factor_without_scaling_is_for_windows_only() -> None:
    found = config("gpt_oss/gpt-oss.F16", **LINEAR | {"rope.scaling.type": "none"})
    kinds = {(window > 0, rope.scaling) for window, rope in zip(found.windows, found.ropes, strict=True)}
    assert kinds == {(True, "linear"), (False, "none")}


def test_a_factor_beside_longrope_s_divisors() -> None:
    scaled = config("phi3/phi3.F16", **{"rope.scaling.type": "longrope", "rope.scaling.factor": 4.0}).ropes[0]
    assert scaled.frequencies(None) == [f / 4 for f in config("phi3/phi3.F16").ropes[0].frequencies(None)]


@pytest.mark.parametrize(
    ("name", "changes", "magnitude", "factor"),
    [
        # the factor is that of queries and of keys; 0.5: the attention factor
        ("latent/deepseek2.F16", YARN, 0.5, 0.5 * (1 + 0.1 * log(4)) / (1 + 0.1 * log(4)) * (1 + 0.1 * log(4))),
        ("latent/deepseek2.F16", LINEAR | {"rope.scaling.type": "none"}, 0.5, 0.5),
        ("latent/deepseek2.F16", LINEAR, 0.5, 0.5 * (1 + 0.1 * log(4)) ** 2),
        ("latent/deepseek2.F16", LINEAR | {"rope.scaling.yarn_log_multiplier": None}, 0.5, 0.5 * (1 + 0.1 * log(4))),
        ("latent/glm-dsa.F16", YARN, 0.5 * (1 + 0.1 * log(4)), 0.5 * (1 + 0.1 * log(4))),
        ("latent/glm-dsa.F16", LINEAR, 0.5, 0.5 * (1 + 0.1 * log(4))),
        # factors below 1: YaRN's magnitude is 1, the rest shrinks
        ("latent/deepseek2.F16", YARN | {"rope.scaling.factor": 0.5}, 0.5, 0.5 * (1 + 0.1 * log(0.5))),
        ("latent/deepseek2.F16", LINEAR | {"rope.scaling.factor": 0.5}, 0.5, 0.5 * (1 + 0.1 * log(0.5)) ** 2),
        ("latent/glm-dsa.F16", YARN | {"rope.scaling.factor": 0.5}, 0.5, 0.5),
        ("latent/minicpm3.F16", YARN, 0.5 * (1 + 0.1 * log(4)), 1.0),
        ("qwen35/kimi-linear.F16", LINEAR, 1.0, 1.0),
    ],
)
def test_scores_of_latent_attention(name: str, changes: dict[str, Any], magnitude: float, factor: float) -> None:
    plain = config(name, **{"rope.scaling.type": None, "rope.scaling.factor": None, "rope.scaling.attn_factor": None})
    found = config(name, **changes, **{"rope.scaling.attn_factor": 0.5})
    assert found.ropes[0].magnitude == pytest.approx(magnitude)
    assert found.attention_scale == pytest.approx(plain.attention_scale * factor**2)


@pytest.mark.parametrize("scaling", [YARN, LINEAR])
def test_deepseek_ocr_does_not_scale_positions(scaling: dict[str, Any]) -> None:
    """But YaRN's magnitude counts. Heads rotate as a whole, whatever the file says."""
    (rope,) = set(config("experts/deepseek2-ocr.F16", **scaling, **{"rope.dimension_count": 8}).ropes)
    assert (rope.scaling, rope.dim) == ("none", 20)
    assert rope.magnitude == pytest.approx(1 + 0.1 * log(4))


def test_smallthinker_with_four_layers_rotates_in_all() -> None:
    layers = {count: config("experts/smallthinker.F16", block_count=count) for count in (4, 5)}
    assert {count: [bool(rope.dim) for rope in found.ropes] for count, found in layers.items()} == {
        4: [True] * 4,
        5: [False, True, True, True, False],
    }


@pytest.mark.parametrize(("name", "divided"), [("llama/llama", True), ("diffusion/llada", False)])
def test_some_architectures_ignore_divisors_of_the_rotation(name: str, divided: bool) -> None:
    found = header(f"{name}.F16")
    found.tensors["rope_freqs.weight"] = TensorInfo("rope_freqs.weight", (16,), TensorType.F32, 0, 64)
    assert rope_factors(found, 64) == ("rope_freqs.weight" if divided else None)


def test_ling_3_may_have_mrope() -> None:
    """It pairs dimensions that are half of the rotated ones apart; without it, neighbours are pairs."""
    found = config("latent/bailingmoe3.F16", **{"rope.dimension_sections": [3, 3, 0, 0]})
    assert {rope.sections for rope in found.ropes} == {(3, 3, 0, 0)}
    assert not any(rope.sections for rope in config("latent/bailingmoe3.F16").ropes)


def test_temperatures_of_queries() -> None:
    """Mistral 3's grow with its original context, Mistral 4's with a length of its own, which must be there."""
    three = config("dense/mistral3-temperature.F16")
    four = config("latent/mistral4-temperature.F16")
    for found in (three, four):
        assert (found.temperature.length, found.temperature.first) == (12, 0)
        assert found.temperature.scale == pytest.approx(0.4)
    assert three.context_length > 12
    assert config("latent/plm.F16", **{"attention.temperature_scale": 0.4}).temperature is None
    with pytest.raises(WispError, match="temperature_length"):
        config("latent/mistral4-temperature.F16", **{"attention.temperature_length": None})


@pytest.mark.parametrize("key", ["rope.dimension_count_swa", "attention.key_length_swa"])
def test_other_sizes_in_windows_are_refused(key: str) -> None:
    size = config("gemma/gemma2.F16").head_dim
    plan(changed("gemma/gemma2.F16", {key: size}))
    with pytest.raises(WispError, match=rf"gemma2\.{key} 8 is not supported, only {size}"):
        plan(changed("gemma/gemma2.F16", {key: 8}))


def test_axes_without_pairs_are_none() -> None:
    assert config("qwen/qwen3.F16", **{"rope.dimension_sections": [0, 0, 0, 0]}).ropes[0].sections == ()


@pytest.mark.parametrize(("sections", "pairs"), [([3, 3, 2, 0], 1), ([0, 0, 0, 0], 0)])
def test_the_pairs_that_glm_4_rotates(sections: list[int], pairs: int) -> None:
    """M-RoPE rotates (i, i + n/2), the text models rotate neighbours. Compared with llama.cpp's logits."""
    found = changed("glm4/glm4.F16", {"rope.dimension_sections": sections})
    made = planner.make_plan(found, Device(software=True), planner.PlanOptions(64, 16, "f32", None))
    assert {op.params["NEOX"] for op in made.lists[PREFILL] if "NEOX" in op.params} == {pairs}
