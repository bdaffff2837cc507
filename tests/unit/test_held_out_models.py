"""Rare forms of metadata and tensors that llama.cpp reads. campaign.py found that Wisp read them differently."""

from dataclasses import replace
from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from py_engine.errors import WispError
from py_engine.models.families import family
from py_engine.plan.lists import MTP, PREFILL, adapted
from tests.golden.make.adapters import write_adapter, write_control_vector
from tests.golden.make.changed_models import QKV, Change, all_of, joined
from tests.golden.make.further_changes import single_biases
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.random_models import build
from tests.golden.make.reference import Reference
from tests.support import mtp_models
from tests.support.cpu_models import evaluate, header, load


def config(name: str, **changes: Any) -> Any:
    """A golden's hyperparameters with other metadata."""
    found = header(name)
    own = {f"{found.architecture}.{key}": value for key, value in changes.items()}
    return family(found).Config.from_gguf(replace(found, metadata=found.metadata | own))


@pytest.mark.parametrize("scaling", [{}, {"rope.scale_linear": 3.0}, {"rope.scaling.type": "yarn"}])
def test_a_factor_of_zero_does_not_scale_positions(scaling: dict[str, object]) -> None:
    found = config("llama/llama.F16", **scaling, **{"rope.scaling.factor": 0.0})
    assert found == config("llama/llama.F16", **scaling, **{"rope.scaling.factor": 1.0})
    assert config("llama/llama.F16", **{"rope.scale_linear": 0.0}) == config("llama/llama.F16")


@pytest.mark.parametrize(("layers", "rotates", "alibi"), [(32, True, 0.0), (40, False, 8.0), (2, False, 0.0)])
def test_the_positions_of_baichuan_depend_on_its_layers(layers: int, rotates: bool, alibi: float) -> None:
    name = "dense/baichuan-13b.F16" if layers > 32 else "dense/baichuan.F16"
    found = config(name, block_count=layers)
    assert ({rope.dim > 0 for rope in found.ropes}, found.alibi_max_bias) == ({rotates}, alibi)


def test_dense_layers_are_as_wide_as_the_first() -> None:
    """Most architectures have the width of the first layer in all, whatever the list says of the others."""
    width = config("llama/llama.F16").feed_forward_length
    assert config("llama/llama.F16", **{"feed_forward_length": [width, width // 2]}).feed_forward_length == width


@pytest.mark.parametrize(("windowed", "rotated"), [([0, 1, 0, 1, 1], [8, 16]), ([1, 0, 0, 1, 1], [16, 16])])
def test_the_first_layer_of_laguna_decides_what_layers_without_a_window_rotate(
    windowed: list[int], rotated: list[int]
) -> None:
    found = config("experts/laguna.F16", **{"attention.sliding_window_pattern": [bool(window) for window in windowed]})
    dims = {(window > 0, rope.dim) for window, rope in zip(found.windows, found.ropes, strict=True)}
    assert sorted(dims) == list(zip([False, True], rotated, strict=True))


@pytest.mark.parametrize(("width", "parts"), [(80, 2), (96, 8), (36, 3)])
def test_norms_of_parts_of_any_width(tmp_path: Path, width: int, parts: int) -> None:
    path = tmp_path / "model.gguf"
    file, _ = build("k2-horizon", 1, kinds={}, n_embd=width, norm_groups=parts)
    file.write(path, "F32", Layout(), None)
    ids = list(range(20))
    np.testing.assert_allclose(evaluate(load(path, 64), ids), Reference(path, 64).logits(ids), atol=1e-3)


@pytest.mark.parametrize(
    ("preset", "settings"),
    [
        ("phi2", {"rope_dim": 2}),
        ("glm4", {"rope_dim": 6}),
        ("step35", {"rope_dim": 4}),  # some of its layers rotate half of them
        ("stablelm", {"rope_dim": 6}),  # pairs half of the rotated dimensions apart
        ("llama", {"head_dim": 10}),
        ("llama-yarn", {"head_dim": 6}),
        ("bloom", {"head_dim": 10, "n_embd": 40}),  # none are rotated
        ("gemma2", {"head_dim": 6}),
        ("gpt2", {"head_dim": 10, "n_embd": 40}),
        ("granitehybrid", {"head_dim": 10}),
        ("nemotron_h", {"head_dim": 10}),
        ("qwen3", {"head_dim": 10}),  # norms of heads
        ("gemma3", {"head_dim": 6}),
        ("laguna", {"head_dim": 10, "rope_dim_swa": 4}),  # a gate of each head
        ("afmoe", {"head_dim": 10}),  # a gate of each value
    ],
)
def test_heads_that_quads_of_dimensions_do_not_divide(tmp_path: Path, preset: str, settings: dict[str, Any]) -> None:
    """Kernels read four dimensions, two pairs, at once: zeros are stored, or a pair that has no angle."""
    path = tmp_path / "model.gguf"
    file, _ = build(preset, 1, kinds={}, **settings)
    file.write(path, "F32", Layout(), None)
    ids = list(range(20))
    np.testing.assert_allclose(evaluate(load(path, 64), ids), Reference(path, 64).logits(ids), atol=2e-3)


def test_a_prediction_layer_with_such_heads_is_not_loaded(tmp_path: Path) -> None:
    path, drafts = tmp_path / "model.F16.gguf", tmp_path / "drafts.gguf"
    file, _ = build("glm4moe", 1, kinds={}, head_dim=10, rope_dim=6)
    file.write(path, "F16", Layout(), None)
    mtp_models.write(str(tmp_path / "model"), drafts)
    model = load(drafts, 64, mtp=True)
    assert MTP not in model.plan.lists
    assert np.isfinite(evaluate(model, list(range(20)))).all()


@pytest.mark.parametrize(
    ("preset", "settings"),
    [
        ("command-r", {"rope_dim": 6, "rope": "yarn"}),  # the pair without an angle would have YaRN's magnitude
        ("qwen35", {"rope_dim": 10, "sections": [3, 1, 1, 0]}),
        ("stablelm-12b", {"head_dim": 10, "rope_dim": 10, "n_embd": 40}),  # layer norms, with weights of each head
        ("graniteswitch", {"head_dim": 10, "n_embd": 40}),
        ("minimax-01", {"head_dim": 10, "rope_dim": 6}),
    ],
)
def test_other_heads_that_quads_do_not_divide_are_refused(
    tmp_path: Path, preset: str, settings: dict[str, Any]
) -> None:
    path = tmp_path / "model.gguf"
    file, _ = build(preset, 1, kinds={}, **settings)
    file.write(path, "F32", Layout(), None)
    with pytest.raises(WispError, match=r"Wisp cannot (rotate|run attention with) \d+ dimensions") as error:
        load(path, 64)
    assert error.value.code == "unsupported_architecture"


@pytest.mark.parametrize(("kind", "factor"), [("linear", 1 + 0.1 * log(0.5)), ("yarn", 1.0)])
def test_a_linear_factor_below_1_lowers_the_scores_of_deepseek_ocr(kind: str, factor: float) -> None:
    found = config("experts/deepseek2-ocr.F16", **{"rope.scaling.type": kind, "rope.scaling.factor": 0.5})
    assert [rope.attn_factor for rope in found.ropes] == pytest.approx([factor] * len(found.ropes))


def test_yarn_below_1_raises_layers_with_a_window_alone() -> None:
    """llama.cpp divides by a magnitude below 1 everywhere, and multiplies by it where YaRN scales."""
    scaling = {"rope.scaling.type": "yarn", "rope.scaling.factor": 0.5}
    found = config("embedding/modern-bert.F16", **scaling)
    magnitudes = {
        (window > 0, round(rope.magnitude, 6)) for window, rope in zip(found.windows, found.ropes, strict=True)
    }
    assert magnitudes == {(False, 1.0), (True, round(1 / (1 + 0.1 * log(0.5)), 6))}


def test_dots_3_scales_no_layer_where_the_metadata_says_so() -> None:
    found = config("latent/dots3note.F16", **{"rope.scaling.type": "none", "rope.scale_linear": 3.0})
    assert {rope.scaling for rope in found.ropes} == {"none"}


def test_windows_of_an_lfm2_that_is_not_causal_are_refused() -> None:
    """In llama.cpp they hide earlier tokens only; no file has them."""
    with pytest.raises(WispError, match=r"sliding_window") as error:
        config("embedding/lfm2-embedding.F16", **{"attention.sliding_window": 100})
    assert error.value.code == "unsupported_architecture"


def test_a_gate_reads_the_layer_and_not_a_latent_of_the_same_width(tmp_path: Path) -> None:
    """Rows are padded to 32 values: the latent of the queries here, of 28, is in a buffer as wide as the layer's."""
    path = tmp_path / "model.gguf"
    file, _ = build("bailingmoe3-ranked", 1, kinds={}, n_embd=32)
    file.write(path, "F32", Layout(), None)
    ids = list(range(10, 30))
    np.testing.assert_allclose(evaluate(load(path, 64), ids), Reference(path, 64).logits(ids), atol=1e-3)


def logits(path: Path, *changes: Change) -> np.ndarray:
    file, _ = build("qwen3", 1, kinds={}, n_layer=1, vocab=300)
    all_of(*changes)(file)
    file.write(path, "F32", Layout(), None)
    return evaluate(load(path, 64), list(range(10, 30)))


def test_joined_matrices_may_have_the_biases_of_three(tmp_path: Path) -> None:
    file, _ = build("qwen3", 1, kinds={}, n_layer=1, vocab=300)
    biases = single_biases(file)
    found = logits(tmp_path / "joined.gguf", joined(QKV, "attn_qkv", 0), biases)
    assert np.abs(found - logits(tmp_path / "none.gguf")).max() > 0.1

    def apart(changed: GgufFile) -> None:
        """The same biases beside three matrices."""
        joined_file, _ = build("qwen3", 1, kinds={}, n_layer=1, vocab=300)
        all_of(joined(QKV, "attn_qkv", 0), biases)(joined_file)
        for part in QKV:
            changed.constant(f"blk.0.{part}.bias", joined_file.tensors[f"blk.0.{part}.bias"])

    np.testing.assert_allclose(found, logits(tmp_path / "apart.gguf", apart), atol=1e-4)
    some = logits(tmp_path / "some.gguf", joined(QKV, "attn_qkv", 0), biases, without_values)
    np.testing.assert_allclose(some, logits(tmp_path / "none.gguf"), atol=1e-4)  # llama.cpp reads all three or none


def without_values(file: GgufFile) -> None:
    del file.tensors["blk.0.attn_v.bias"]


def test_control_vectors_of_parallel_layers(tmp_path: Path) -> None:
    """A direction of a layer whose attention and network are side by side is added after both."""
    file, used = build("phi2", 1, kinds={}, n_layer=2, vocab=300)
    path, vector = tmp_path / "model.gguf", tmp_path / "vector.gguf"
    file.write(path, "F32", Layout(), None)
    write_control_vector(vector, "phi2", {1: np.full(used["n_embd"], 2.0, np.float32)})
    wisp = load(path, 64, adapters=[vector], scales=[1.0])
    assert any("direction" in op.kernel for op in wisp.plan.lists[adapted(PREFILL)])


def test_adapters_of_matrices_that_llama_cpp_does_not_adapt(tmp_path: Path) -> None:
    file, _ = build("gemma3n", 1, kinds={})
    path, adapter = tmp_path / "model.gguf", tmp_path / "adapter.gguf"
    file.write(path, "F32", Layout(), None)
    pairs = {
        name: (np.ones((2, data.shape[1]), np.float32), np.ones((data.shape[0], 2), np.float32))
        for name, data in file.tensors.items()
        if name in ("per_layer_model_proj.weight", "blk.1.altup_router.weight", "blk.1.attn_q.weight")
    }
    assert len(pairs) == 3
    write_adapter(adapter, "gemma3n", 4.0, pairs)
    assert set(load(path, 64, adapters=[adapter], scales=[1.0]).plan.adapters.pairs) == {"blk.1.attn_q.weight"}
