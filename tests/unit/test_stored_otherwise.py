"""Models as other converters may store them: joined matrices, biases beside gated queries, lists of numbers."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from py_engine.errors import WispError
from py_engine.plan.lists import DECODE
from tests.golden.make.changed_models import (
    QKV,
    Change,
    all_of,
    joined,
    kind,
    unchanged,
    with_biases,
    with_key,
    with_scales,
    with_tensors,
    without_tensors,
)
from tests.golden.make.gguf_file import GgufFile, Layout
from tests.golden.make.random_models import build
from tests.golden.make.record import random_prompt
from tests.golden.make.reference import Reference
from tests.support import wasm_engines
from tests.support.cpu_models import evaluate, load

SEED, N_CTX, PROMPT = 3, 64, 18
JOINED = joined(QKV, "attn_qkv", 0)
BIASED = with_biases(*QKV)
SCALED = with_scales(
    *QKV, "attn_qkv", "attn_output", "attn_gate", "ssm_in", "ssm_out", "ffn_gate", "ffn_up", "ffn_down",
    "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp", "output",
)  # fmt: skip


def saved(path: Path, preset: str, change: Change = unchanged, **settings: Any) -> Path:
    file, _ = build(preset, SEED, **settings)
    change(file)
    file.write(path, "F32", Layout(), None)
    return path


def logits(path: Path) -> np.ndarray:
    """Logits of a prompt read in batches, then of a token that is decoded."""
    model = load(path, N_CTX)
    *prompt, last = random_prompt(PROMPT + 1, model.plan.n_vocab, SEED).tolist()
    read = evaluate(model, prompt)
    model.feed(PROMPT, [last], [DECODE])
    return np.vstack([read, model.buffers["logits"].reshape(-1)[: model.plan.n_vocab]])


def exact(path: Path) -> np.ndarray:
    reference = Reference(path, N_CTX)
    return reference.logits(random_prompt(PROMPT + 1, reference.tensors["token_embd.weight"].shape[0], SEED).tolist())


@pytest.mark.parametrize("preset", ["qwen2", "qwen35", "qwen35moe", "qwen3next", "gemma3n", "kimi-linear"])
def test_queries_keys_and_values_in_one_tensor(preset: str, tmp_path: Path) -> None:
    """Also where each head's gates follow its queries, and where a layer shares an earlier one's cache."""
    apart = logits(saved(tmp_path / "apart.gguf", preset))
    assert logits(saved(tmp_path / "joined.gguf", preset, JOINED)) == pytest.approx(apart, abs=2e-4)


@pytest.mark.parametrize("change", [BIASED, all_of(BIASED, JOINED)], ids=["apart", "joined"])
def test_biases_of_queries_with_gates(change: Change, tmp_path: Path) -> None:
    plain = saved(tmp_path / "plain.gguf", "qwen35")
    apart = saved(tmp_path / "apart.gguf", "qwen35", BIASED)
    got = logits(saved(tmp_path / "model.gguf", "qwen35", change))
    assert got == pytest.approx(exact(apart), abs=2e-3)
    assert np.abs(got - logits(plain)).max() > 0.1


def test_biases_that_llama_cpp_loads_and_does_not_add(tmp_path: Path) -> None:
    """Qwen 4's of queries, keys and values."""
    plain, biased = saved(tmp_path / "plain.gguf", "qwen4exp"), saved(tmp_path / "biased.gguf", "qwen4exp", BIASED)
    assert biased.stat().st_size > plain.stat().st_size
    np.testing.assert_array_equal(logits(biased), logits(plain))


def test_biases_of_queries_with_gates_as_wide_as_the_padding(tmp_path: Path) -> None:
    """With gates and without, a row of queries, keys and values has as many columns of 32."""
    path = saved(tmp_path / "model.gguf", "qwen35", BIASED, n_head=2, n_kv=2, head_dim=12, rope_dim=8, n_layer=4)
    assert logits(path) == pytest.approx(exact(path), abs=2e-3)


@pytest.mark.parametrize("there", ["attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"])
def test_biases_of_some_matrices_of_a_stack(there: str, tmp_path: Path) -> None:
    """The others' are zeros."""
    path = saved(tmp_path / "model.gguf", "llama", with_biases(there))
    got = logits(path)
    assert got == pytest.approx(exact(path), abs=2e-3)
    assert np.abs(got - logits(saved(tmp_path / "plain.gguf", "llama"))).max() > 0.1


@pytest.mark.parametrize("preset", ["cohere2moe", "cohere2moe-rms"])
def test_a_bias_of_the_norm_that_attention_and_experts_read(preset: str, tmp_path: Path) -> None:
    biased = with_tensors("attn_norm.bias", "attn_norm.weight", np.shape)
    path = saved(tmp_path / "model.gguf", preset, biased)
    assert logits(path) == pytest.approx(exact(path), abs=2e-3)


@pytest.mark.parametrize("missing", ["time_mix_receptance", "time_mix_value"])
def test_biases_of_some_matrices_of_a_time_mix(missing: str, tmp_path: Path) -> None:
    def with_zeros(file: GgufFile) -> None:
        for name in file.tensors:
            file.tensors[name] = file.tensors[name] * (kind(name) != f"{missing}.bias")

    zeros = logits(saved(tmp_path / "zeros.gguf", "rwkv6qwen2", with_zeros))
    without = saved(tmp_path / "without.gguf", "rwkv6qwen2", without_tensors(f"{missing}.bias"))
    assert np.array_equal(logits(without), zeros)


@pytest.mark.parametrize("width", [20, 36])
def test_inputs_of_layers_of_any_width(width: int, tmp_path: Path) -> None:
    path = saved(tmp_path / "model.gguf", "gemma4", pl=width)
    assert logits(path) == pytest.approx(exact(path), abs=2e-3)


def test_divisors_of_more_pairs_than_rotate(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.gguf", "gemma4-dense", with_key("rope.dimension_count", 8))
    assert logits(path) == pytest.approx(exact(path), abs=2e-3)


@pytest.mark.parametrize("preset", ["granitehybrid", "lfm2", "qwen3"])
def test_numbers_for_each_layer(preset: str, tmp_path: Path) -> None:
    """A list may have the same number for each layer, and 0 heads for layers that do not attend."""
    file, used = build(preset, SEED)
    metadata = dict(file.metadata)
    kv_heads = metadata[f"{file.architecture}.attention.head_count_kv"]
    attends = kv_heads if isinstance(kv_heads, list) else [1] * used["n_layer"]
    heads = with_key("attention.head_count", [used["n_head"] if n else 0 for n in attends])
    widths = with_key("feed_forward_length", [used["n_ff"]] * used["n_layer"])
    one = logits(saved(tmp_path / "one.gguf", preset))
    assert np.array_equal(logits(saved(tmp_path / "each.gguf", preset, all_of(heads, widths))), one)


@pytest.mark.parametrize("preset", ["llama", "qwen2", "qwen3moe", "qwen35moe", "granitehybrid", "gemma3", "phi3"])
def test_scales_beside_matrices(preset: str, tmp_path: Path) -> None:
    """As files in NVFP4 have them. The matrices alone are some thousand times as large."""
    apart = logits(saved(tmp_path / "apart.gguf", preset))
    assert logits(saved(tmp_path / "scaled.gguf", preset, SCALED)) == pytest.approx(apart, abs=1e-3)


def stored_as(tensor: str, type: str) -> Change:
    """Store a kind of tensor, which is F32 in most files, as another type."""

    def change(file: GgufFile) -> None:
        for name in [name for name in file.tensors if kind(name) == tensor]:
            file.float32.remove(name)
            file.kinds[name] = type

    return change


GATE_OF_SHARED_EXPERT = "ffn_gate_inp_shexp.weight"


@pytest.mark.parametrize("preset", ["qwen2moe", "qwen35moe", "qwen3next"])
def test_a_gate_of_the_shared_expert_in_halves(preset: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "model.gguf", preset, stored_as(GATE_OF_SHARED_EXPERT, "F16"))
    assert logits(path) == pytest.approx(exact(path), abs=2e-3)


FACTORS = ("altup_predict_coef.weight", "altup_correct_coef.weight")
HALF_FACTORS = all_of(*(stored_as(factors, "F16") for factors in FACTORS))


@pytest.mark.parametrize("factors", FACTORS)
def test_factors_of_streams_in_halves(factors: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "model.gguf", "gemma3n", stored_as(factors, "F16"))
    assert logits(path) == pytest.approx(exact(path), abs=2e-3)


@pytest.mark.parametrize("preset", ["hunyuan-dense", "maincoder"])
def test_yarn_before_a_norm_of_heads_counts_beside_the_epsilon(preset: str, tmp_path: Path) -> None:
    path = saved(tmp_path / "model.gguf", preset, rope="yarn", ctx=512, eps=0.01)
    assert logits(path) == pytest.approx(exact(path), abs=2e-3)


@pytest.mark.parametrize("alone", ["q", "k"])
@pytest.mark.parametrize("preset", ["stablelm-12b", "glm4moe"])
def test_a_norm_of_queries_or_keys_alone(preset: str, alone: str, tmp_path: Path) -> None:
    other = "k" if alone == "q" else "q"
    path = saved(tmp_path / "model.gguf", preset, without_tensors(f"attn_{other}_norm.weight"))
    assert logits(path) == pytest.approx(exact(path), abs=2e-3)


def test_values_that_are_longer_than_keys(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.gguf", "mimo2", value_dim=36)
    assert logits(path) == pytest.approx(exact(path), abs=2e-3)


UNSCALED = [("gemma3", "token_embd"), ("llama4", "ffn_down_exps"), ("gpt-oss", "ffn_down_exps")]
UNSCALED += [("gemma4-moe", "ffn_gate_up_exps")]


@pytest.mark.parametrize(("preset", "matrix"), UNSCALED)
def test_a_scale_that_cannot_be_applied_is_refused(preset: str, matrix: str, tmp_path: Path) -> None:
    with pytest.raises(WispError, match=rf"{matrix}\.scale") as error:
        logits(saved(tmp_path / "model.gguf", preset, with_scales(matrix)))
    assert error.value.code == "unsupported_quantization"


def with_a_short_network(file: GgufFile) -> None:
    """The second feed-forward network is shorter than the others."""
    layer, length = 4, 64
    up, down = (f"blk.{layer}.ffn_{name}.weight" for name in ("up", "down"))
    file.tensors[up], file.tensors[down] = file.tensors[up][:length], file.tensors[down][:, :length]
    lengths = dict(file.metadata)["nemotron_h.feed_forward_length"]
    assert isinstance(lengths, list)
    with_key("feed_forward_length", [*lengths[:layer], length, *lengths[layer + 1 :]])(file)


def test_networks_of_different_lengths(tmp_path: Path) -> None:
    path = saved(tmp_path / "model.gguf", "nemotron_h", with_a_short_network)
    assert logits(path) == pytest.approx(exact(path), abs=2e-3)


def with_unit_norms(file: GgufFile) -> None:
    """Norms of dt, B and C whose weights are 1."""
    metadata, n = dict(file.metadata), file.architecture
    for layer in range(int(str(metadata[f"{n}.block_count"]))):
        for name, key in (("dt", "time_step_rank"), ("b", "state_size"), ("c", "state_size")):
            file.constant(f"blk.{layer}.ssm_{name}_norm.weight", np.ones(int(str(metadata[f"{n}.ssm.{key}"]))))


def test_norms_without_weights_in_mamba(tmp_path: Path) -> None:
    """FalconMamba's."""
    plain = logits(saved(tmp_path / "plain.gguf", "mamba"))
    ones = logits(saved(tmp_path / "ones.gguf", "mamba", with_unit_norms))
    got = logits(saved(tmp_path / "none.gguf", "mamba", with_key("ssm.dt_b_c_rms", True)))
    assert got == pytest.approx(ones, abs=1e-4)
    assert np.abs(got - plain).max() > 0.1


def test_mamba_has_no_groups(tmp_path: Path) -> None:
    plain = logits(saved(tmp_path / "plain.gguf", "mamba"))
    assert np.array_equal(logits(saved(tmp_path / "groups.gguf", "mamba", with_key("ssm.group_count", 2))), plain)


WASM: list[tuple[str, Change, dict[str, int]]] = [
    ("qwen35", all_of(BIASED, JOINED), {}),
    ("gemma3n", JOINED, {}),
    ("gemma4", unchanged, {"pl": 20}),
    ("mamba", with_key("ssm.dt_b_c_rms", True), {}),
    ("llama", SCALED, {}),
    ("qwen3moe", SCALED, {}),
    ("stablelm", with_biases("attn_k", "ffn_gate"), {}),
    ("nemotron_h", with_a_short_network, {}),
    ("nemotron_h_moe", unchanged, {"latent": 40}),
    ("qwen2moe", stored_as(GATE_OF_SHARED_EXPERT, "F16"), {}),
    ("stablelm-12b", without_tensors("attn_q_norm.weight"), {}),
    ("mimo2", unchanged, {"value_dim": 36}),
    ("gemma3n", HALF_FACTORS, {}),
    ("bailingmoe3", with_key("rope.dimension_sections", [3, 3, 0, 0]), {}),
]


@pytest.mark.parametrize(("preset", "change", "settings"), WASM, ids=[preset for preset, *_ in WASM])
async def test_the_cpu_engine_computes_the_same(
    preset: str, change: Change, settings: dict[str, int], tmp_path: Path
) -> None:
    path = saved(tmp_path / "model.gguf", preset, change, **settings)
    want = logits(path)
    engine = await wasm_engines.load(path, N_CTX)
    got, _ = await engine.evaluate(random_prompt(PROMPT + 1, want.shape[1], SEED).tolist())
    assert got == pytest.approx(want, abs=5e-3)
