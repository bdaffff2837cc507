"""Which metadata counts for which architecture, and what stands in for what is missing: as in llama.cpp.

It reads many keys for a few architectures only. The cases were found by comparing its logits with and without them.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from py_engine import planner
from py_engine.errors import WispError
from py_engine.files.gguf_header import TensorInfo, parse
from py_engine.files.tensor_types import TensorType
from py_engine.load_plan import context_of
from py_engine.models.config import Mixture
from py_engine.models.families import family
from py_engine.plan.indexer import IndexShape
from py_engine.plan.kernels import Device
from py_engine.plan.lists import pool
from py_engine.plan.plan import Buffer
from py_engine.planner import PlanOptions, make_plan
from tests.golden.make.gguf_file import Layout
from tests.golden.make.random_models import write
from tests.support.changed_headers import changed, config, plan
from tests.support.cpu_models import header, with_vocab


def test_an_index_that_is_computed() -> None:
    """The context may be longer than what it chooses. Layers may have no index of their own."""
    found = config("latent/glm-dsa.F16", **{"context_length": 4096})
    assert found.context_length == 4096
    assert found.index_of == IndexShape(3, 64, 256, 12, False)
    assert config("latent/deepseek32.F16").layer(1).index == IndexShape(3, 64, 256, 12, True)
    own = [config("latent/glm-dsa-top9.F16").layer(i).index.own for i in range(4)]
    assert own == [True, False, True, False]
    unsaid = {"attention.indexer.types": None}
    assert config("latent/glm-dsa-top9.F16", **unsaid).own_index == (True, True, True, True)
    assert config("latent/glm-dsa-top9.F16", **unsaid, context_length=1 << 20).own_index == (True, True, True, False)
    assert config("latent/deepseek32.F16", context_length=1 << 20).own_index == (True, True)
    assert config("latent/hy_v4-top5.F16").own_index == (True, False, True)
    found = config("latent/hy_v4-top5.F16")
    assert found.layer(0).index == IndexShape(2, 64, 5, 12, False, first=52, eps=found.eps)
    assert config("latent/hy_v4.F16").layer(0).index is None
    assert [config("latent/dots3note-top8.F16").layer(i).index is None for i in range(3)] == [False, True, False]
    found = config("qwen35/qwen4exp-top8.F16", context_length=4096)
    raw = IndexShape(3, 12, 8, 8, True, eps=found.eps, pool=4, raw=True)
    assert [found.layer(i).index for i in range(3)] == [None, None, raw]
    assert (found.context_length, found.context_with_media) == (4096, 8)
    assert config("qwen35/qwen4exp-plain.F16", context_length=4096).layer(1).index is None
    left_out = {"rope.dimension_sections": [1, 0, 3, 0]}
    assert config("qwen35/qwen4exp-top8.F16", context_length=4096, **left_out).context_length == 8
    for ratios in ([0, 2, 4], [0, 0, 1], [0, 0, 3], [4]):
        with pytest.raises(WispError, match="indices that join") as error:
            config("qwen35/qwen4exp-top8.F16", **{"attention.compress_ratios": ratios})
        assert error.value.code == "corrupt_header"
    for wrong in ({"attention.indexer.types": [0, 1]}, {"attention.indexer.types": [1]}):
        with pytest.raises(WispError, match="the first layer must have an index") as error:
            config("latent/glm-dsa.F16", **wrong)
        assert error.value.code == "corrupt_header"
    for size in (8, 66):
        with pytest.raises(WispError, match=f"an index with keys of {size} dimensions") as error:
            config("latent/glm-dsa.F16", **{"attention.indexer.key_length": size})
        assert error.value.code == "unsupported_architecture"


def test_an_index_is_planned_for_longer_contexts_only() -> None:
    """In a context of as many positions as it chooses, a token attends to all."""
    for n_ctx, indexed in ((30, False), (31, True)):
        options = PlanOptions(n_ctx, 16, "f32", None)
        made = make_plan(header("latent/glm-dsa-top30.F16"), Device(software=True), options)
        kernels = {op.kernel for ops in made.lists.values() for op in ops}
        assert ("index_choose" in kernels) == indexed
        assert ("index.0" in made.buffers) == indexed


def test_contexts_with_pictures_may_be_shorter() -> None:
    """Where an index rotates joined keys by the positions of text."""
    found = changed("qwen35/qwen4exp-top8.F16", {"context_length": 4096})
    assert [context_of(found, None, False, with_media=media) for media in (False, True)] == [4096, 8]
    assert context_of(found, 100, True, with_media=True) == 8
    with pytest.raises(WispError, match="at most 8 tokens"):
        context_of(found, 9, False, with_media=True)
    assert context_of(found, 9, False, with_media=False) == 9


def test_an_index_limits_the_context() -> None:
    """In a context of as many positions as it chooses, a token attends to all."""
    with pytest.raises(WispError) as error:
        config("latent/glm-dsa.F16", **{"attention.indexer.top_k": None})
    assert error.value.code == "missing_metadata"
    assert config("experts/minimax-m3.F16", **{"context_length": 4096}).context_length == 4 * 64


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"ple.layers": [0, 1]}, r"Only one layer can add n-grams; qwen4exp.ple.layers is \[0, 1\]."),
        ({"ple.layers": [2]}, "Layers that add n-grams must be recurrent."),
        ({"ple.layers": [7]}, "Layers that add n-grams must be recurrent."),
        ({"ple.ngram_size": 1}, "Wisp cannot embed n-grams of 1 tokens with 2 heads of 12 columns each, of 48."),
        ({"ple.heads_per_ngram": 1}, "Wisp cannot embed n-grams of 3 tokens with 1 heads of 12 columns each, of 48."),
        ({"ple.conv_kernel": 1}, "a convolution of n-grams over 1 inputs, each 3 tokens after the one before."),
        ({"ple.conv_kernel": 7}, "a convolution of n-grams over 7 inputs, each 3 tokens after the one before."),
        ({"ple.layer_multipliers": [1, 2]}, "qwen4exp.ple.layer_multipliers must have 3 whole numbers."),
        ({"ple.head_offsets": [0, 1, 2, 1 << 31]}, "qwen4exp.ple.head_offsets must have 4 whole numbers."),
        ({"ple.head_vocab_sizes": [3, 0, 3, 3]}, "The rows of n-grams' heads are not those of a table."),
    ],
    ids=str,
)
def test_ngrams_that_no_kernel_can_embed_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(WispError, match=says):
        config("qwen35/qwen4exp.F16", **changes)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"rope.dimension_count": 8}, "GLM 5.3 with attention that rotates is not supported."),
        ({"rope.dimension_count": None}, "GLM 5.3 with attention that rotates is not supported."),
        ({"attention.indexer.kpool": 3}, "an index that joins 3 keys and chooses 256 positions"),
        ({"attention.indexer.kpool_select_tail": False}, "one that leaves out the newest"),
        ({"hyper_connection.count": 2}, "GLM 5.3 needs 4 residual streams."),
    ],
    ids=str,
)
def test_what_no_kernel_runs_of_glm_5_3_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(WispError, match=says) as error:
        config("latent/glm5-next.F16", **changes)
    assert error.value.code == "unsupported_architecture"


def test_limits_of_shared_experts_are_the_others_where_the_file_has_none() -> None:
    assert config("latent/glm5-next-top8.F16").layer(1).index == IndexShape(3, 64, 8, 0, False, eps=0.0, pool=4)
    assert config("latent/glm5-next-top8.F16").layer(0).index is None
    own = [config("latent/glm5-next-top28.F16").layer(i).index for i in (0, 2)]
    assert [index.own for index in own] == [True, False]
    assert config("latent/glm5-next.F16").layer(0).activation == "clamped_silu<0.30000001192092896"
    assert config("latent/glm5-next.F16").layer(0).expert_activation == "silu"
    assert config("latent/glm5-next-shared.F16").layer(0).activation == "clamped_silu<0.5"


def test_media_count_as_the_end_of_a_text_without_a_token_for_pictures() -> None:
    assert config("qwen35/qwen4exp.F16").ngrams.picture == 290
    assert config("qwen35/qwen4exp.F16", **{"ple.image_token_id": 0}).ngrams.picture == 51
    assert config("qwen35/qwen4exp.F16", **{"ple.layers": []}).ngrams is None


def test_a_vocabulary_without_tokens_of_pictures_is_refused() -> None:
    found = header("dense/chameleon.F16")
    table = replace(found.tensors["token_embd.weight"], shape=(32, 8195))
    with pytest.raises(WispError, match="tokens of pictures"):
        family(found).Config.from_gguf(replace(found, tensors=found.tensors | {"token_embd.weight": table}))


COUNTS = [
    ("latent/glm-dsa.F16", "expert_gating_func", 1, True),
    ("latent/glm-dsa.F16", "expert_weights_scale", 1.6, True),
    ("latent/glm-dsa.F16", "attention.temperature_scale", 0.3, False),
    ("latent/glm-dsa.F16", "rope.scaling.yarn_log_multiplier", 0.1, False),
    ("llama/llama-yarn.F16", "rope.scaling.yarn_beta_slow", 2.0, False),
    ("llama/llama-yarn.F16", "rope.scaling.yarn_log_multiplier", 0.1, False),
    ("dense/mistral3.F16", "rope.scaling.yarn_beta_slow", 2.0, True),
    ("dense/mistral3.F16", "rope.scaling.yarn_log_multiplier", 0.1, True),
    ("llama/mixtral.F16", "expert_gating_func", 2, False),
    ("llama/mixtral.F16", "expert_weights_scale", 1.6, False),
    ("experts/llama4.F16", "expert_gating_func", 1, False),
    ("experts/dots1.F16", "expert_gating_func", 1, True),
    ("experts/dots1.F16", "expert_weights_scale", 1.6, True),
    ("experts/deepseek.F16", "expert_weights_scale", 1.6, True),
    ("gpt2/gpt2.F16", "attention.clamp_kqv", 0.7, False),
    ("dense/bloom.F16", "attention.clamp_kqv", 0.7, False),
    ("dense/mpt.F16", "attention.clamp_kqv", 0.7, True),
    ("experts/dbrx.F16", "attention.clamp_kqv", 0.7, True),
    ("gemma/gemma.F16", "attention.sliding_window", 7, False),
    ("gemma/gemma.F16", "final_logit_softcapping", 2.0, False),
    ("gemma/gemma3.F16", "attn_logit_softcapping", 3.0, False),
    ("gemma/gemma3.F16", "attention.scale", 0.3, False),
    ("gemma/gemma3n.F16", "final_logit_softcapping", 2.0, False),
    ("gemma/gemma2.F16", "rope.freq_base_swa", 300.0, True),
    ("experts/afmoe.F16", "rope.freq_base_swa", 300.0, True),
    ("experts/llama4.F16", "rope.freq_base_swa", 300.0, True),
    ("experts/smallthinker.F16", "rope.freq_base_swa", 300.0, True),
    ("gpt_oss/gpt-oss.F16", "rope.freq_base_swa", 300.0, True),
    ("granite/granite.F16", "rope.scaling.finetuned", False, True),
    ("dense/minicpm.F16", "rope.scaling.finetuned", False, False),
    ("dense/minicpm.F16", "attention.scale", 0.3, False),
    ("lfm2/lfm2.F16", "attention.sliding_window", 7, True),
    ("experts/lfm2moe.F16", "attention.sliding_window", 7, False),
    ("rwkv/rwkv6.F16", "attention.layer_norm_rms_epsilon", 1e-3, False),
    ("rwkv/rwkv6qwen2.F16", "attention.head_count_kv", [2, 2], False),
]


@pytest.mark.parametrize(("name", "key", "value", "counts"), COUNTS)
def test_a_key_counts_for_some_architectures(name: str, key: str, value: Any, counts: bool) -> None:
    assert (config(name, **{key: value}) != config(name)) == counts


@pytest.mark.parametrize("missing", ["q", "k"])
@pytest.mark.parametrize(("name", "refused"), [("qwen/qwen3.F16", True), ("experts/glm4moe.F16", False)])
def test_a_norm_of_queries_or_keys_alone(name: str, refused: bool, missing: str) -> None:
    """As llama.cpp loads it, or does not."""
    found = header(name)
    del found.tensors[tensor := f"blk.0.attn_{missing}_norm.weight"]
    if not refused:
        plan(found)
        return
    with pytest.raises(WispError, match=tensor) as error:
        plan(found)
    assert error.value.code == "missing_tensor"


REFUSED = [
    ("latent/bailingmoe3.F16", "kda.gate_lower_bound", 0.5, "corrupt_header"),
    ("latent/bailingmoe3.F16", "kda.safe_gate", False, "unsupported_architecture"),
    ("dense/hrm_text.F16", "hrm.h_cycles", 3, "corrupt_header"),
    ("granite/graniteswitch.F16", "adapters.token_ids_activate", [129, 300], "corrupt_header"),
    ("granite/graniteswitch.F16", "adapters.token_ids_substitute", [20, 21, 304], "corrupt_header"),
    ("latent/dots3note.F16", "attention.key_length_mla_swa", 8, "corrupt_header"),
    ("experts/minimax-01.F16", "expert_count", 0, "unsupported_architecture"),
]


@pytest.mark.parametrize(("name", "key", "value", "code"), REFUSED)
def test_metadata_that_is_refused(name: str, key: str, value: Any, code: str) -> None:
    with pytest.raises(WispError) as error:
        config(name, **{key: value})
    assert error.value.code == code


def test_defaults_of_soft_caps() -> None:
    keys = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    gemma2, gemma4 = config("gemma/gemma2.F16", **keys), config("gemma4/gemma4.F16", **keys)
    assert (gemma2.attention_soft_cap, gemma2.final_soft_cap, gemma4.final_soft_cap) == (50.0, 30.0, 30.0)


def test_a_head_s_size_is_by_default_that_of_the_first_layer() -> None:
    heads = {"attention.head_count": [2, 4, 0, 0, 2], "attention.key_length": None, "attention.value_length": None}
    assert config("dense/deci.F16", **heads, **{"rope.dimension_count": None}).head_dim == 40


def test_a_softmax_of_the_chosen_experts_has_normalised_weights_and_no_biases() -> None:
    gating = {"expert_gating_func": 3, "expert_weights_norm": False}
    found = changed("experts/dots1.F16", gating)
    with pytest.raises(WispError, match="expert_gating_func 3 with biases"):
        plan(found)
    tensors = {name: info for name, info in found.tensors.items() if "exp_probs_b" not in name}
    without = replace(found, tensors=tensors)
    mixture = family(without).Config.from_gguf(without).mixture
    assert mixture.normalised
    assert mixture.gating == "softmax"


@pytest.mark.parametrize(
    ("layers", "vocab", "gating"),
    [(47, 154_880, "sigmoid"), (48, 154_880, "sigmoid"), (46, 154_880, "softmax"), (47, 154_881, "softmax")],
)
def test_the_first_files_of_glm_4_7_flash_do_not_say_their_gating(layers: int, vocab: int, gating: str) -> None:
    silent = {"block_count": layers, "expert_gating_func": None}
    for changes, expected in ((silent, gating), (silent | {"expert_gating_func": 1}, "softmax")):
        mixture = Mixture.from_gguf(with_vocab(changed("latent/deepseek2.F16", changes), vocab))
        assert mixture
        assert mixture.gating == expected


def test_a_gating_that_is_not_supported_is_named() -> None:
    with pytest.raises(WispError, match=r"dots1\.expert_gating_func 5"):
        plan(changed("experts/dots1.F16", {"expert_gating_func": 5}))


@pytest.mark.parametrize("causal", [None, True])
@pytest.mark.parametrize("name", ["llama-embed", "eurobert"])
def test_an_encoder_like_llama_has_to_say_that_it_is_not_causal(name: str, causal: bool | None) -> None:
    """llama.cpp computes something else then. NeoBERT is not causal whatever the file says."""
    with pytest.raises(WispError, match=rf"{name} models .* {name}\.attention\.causal") as error:
        plan(changed(f"embedding/{name}.F16", {"attention.causal": causal}))
    assert error.value.code == "unsupported_architecture"
    assert not config("embedding/neo-bert.F16", **{"attention.causal": causal}).causal


@pytest.mark.parametrize("preset", ["deepseek2", "glm-dsa", "mistral4"])
def test_keys_of_latent_attention_are_of_one_head(preset: str, tmp_path: Path) -> None:
    """A key is the latent and the rotated part, for all heads: no tensor needs as many dimensions as heads times it."""
    path = tmp_path / "model.gguf"
    write(path, preset, "F16", 1, Layout(), None, n_head=8, kv_rank=64, nope=16, rope_dim=8, v_dim=16)
    found = parse(path.read_bytes(), path.stat().st_size)
    assert found.arch("attention.key_length") * 8 > found.largest_dimension
    plan(found)


@pytest.mark.parametrize("width", [4000, 0, None])
@pytest.mark.parametrize("name", ["qwen/qwen3moe.F16", "gpt_oss/gpt-oss.F16", "experts/bailingmoe.F16"])
def test_the_width_of_dense_layers_that_a_mixture_lacks(name: str, width: int | None) -> None:
    plan(changed(name, {"feed_forward_length": width}))


@pytest.mark.parametrize(
    ("name", "code"), [("qwen/qwen3.F16", "corrupt_header"), ("experts/dots1.F16", "bad_tensor_shape")]
)
def test_the_width_of_dense_layers_that_a_model_has(name: str, code: str) -> None:
    with pytest.raises(WispError) as error:
        plan(changed(name, {"feed_forward_length": 4000}))
    assert error.value.code == code


def test_an_architecture_has_layer_norms_whatever_the_file_says() -> None:
    """llama.cpp chooses the norm by the architecture: a file may have both epsilons."""
    both = config("gpt2/starcoder2.F16", **{"attention.layer_norm_rms_epsilon": 0.5})
    assert both.layer_norm
    assert both.eps < 0.1
    assert not config("llama/llama.F16", **{"attention.layer_norm_epsilon": 0.5}).layer_norm


@pytest.mark.parametrize("name", ["gemma/gemma2", "gemma/gemma3", "gemma4/gemma4", "mamba/nemotron_h"])
def test_a_decoder_may_see_all_tokens(name: str) -> None:
    assert config(f"{name}.F16").causal
    assert not config(f"{name}.F16", **{"attention.causal": False}).causal


@pytest.mark.parametrize(("name", "softmax"), [("qwen/qwen3", True), ("dense/qwen3vl", True), ("qwen/qwen2", False)])
def test_labels_of_rerankers_whose_scores_sum_to_one(name: str, softmax: bool) -> None:
    embedding = planner.make_plan(
        header(f"{name}.F16"), Device(software=True), planner.PlanOptions(64, 16, "f32", None)
    ).embedding
    assert embedding
    assert embedding.softmax == softmax


@pytest.mark.parametrize(("length", "width"), [(None, 64), (40, 40), (4000, 64)])
@pytest.mark.parametrize("name", ["bert", "gemma-embedding"])
def test_an_embedding_may_be_the_first_values_only(name: str, length: int | None, width: int) -> None:
    found = changed(f"embedding/{name}.F16", {"embedding_length_out": length})
    made = planner.make_plan(found, Device(software=True), planner.PlanOptions(64, 64, "f32", None))
    assert made.embedding
    assert made.embedding.width == width


def test_pooling_reads_floats_after_a_head_of_one_layer() -> None:
    """Also where products read halves."""
    found = header("embedding/bert-rank.F16")
    del found.tensors["cls.output.weight"], found.tensors["cls.output.bias"]
    made = planner.make_plan(found, Device(f16=True, subgroup=32), planner.PlanOptions(64, 64, "f16", None))
    (rows,) = [op.bindings["x"] for op in made.lists[pool("rank")] if op.kernel == "pool"]
    assert isinstance(rows, Buffer)
    assert rows.dtype == "f32"


def test_convolutions_of_an_encoder_reach_as_far_to_either_side() -> None:
    with pytest.raises(WispError, match=r"This kind of LFM2") as error:
        config("embedding/lfm2-embedding.F16", **{"shortconv.l_cache": 4})
    assert error.value.code == "unsupported_architecture"


READ = [
    ("dense/ernie4_5", "blk.0.attn_output", False),
    ("mamba/falcon-h1", "blk.0.attn_output", False),
    ("llama/llama", "blk.0.attn_output", True),
    ("embedding/nomic-bert", "blk.0.ffn_down", False),
    ("diffusion/llada", "blk.0.ffn_down", False),
    ("diffusion/dream", "output", False),
    ("dense/qwen2vl", "output", False),
    ("dense/apertus", "blk.0.attn_q_norm", False),
    ("dense/refact", "blk.0.ffn_up", False),
    ("qwen/qwen3", "output", True),
]


@pytest.mark.parametrize(("name", "matrix", "reads"), READ)
def test_biases_that_llama_cpp_does_not_apply(name: str, matrix: str, reads: bool) -> None:
    found, bias = header(f"{name}.F16"), f"{matrix}.bias"
    *_, size = found.tensors.get(f"{matrix}.weight", found.tensors["token_embd.weight"]).shape
    found.tensors[bias] = TensorInfo(bias, (size,), TensorType.F32, 0, 4 * size)
    made = planner.make_plan(found, Device(software=True), planner.PlanOptions(64, 16, "f32", None))
    sources = {tensor for weight in made.weights.values() for tensor, *_ in weight.sources}
    assert (bias in sources) == reads
