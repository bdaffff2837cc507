"""Hostile GGUF headers: counts and dimensions beyond the tensors, wrong types, headers that would fill the memory."""

import math
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from app.models.loading import vocabulary
from app.models.projector import prompt_rows
from py_engine import planner
from py_engine.errors import WispError
from py_engine.files import gguf_values
from py_engine.files.gguf_header import Header, parse
from py_engine.files.gguf_values import MAX_ARRAYS
from py_engine.files.parts import Parts
from py_engine.models.common import deepstack
from py_engine.plan.kernels import Device
from py_engine.plan.rope import RopeSpec, table
from tests.support.gguf_bytes import ARCH, ARRAY, F32, STRING, U8, U32, gguf, string

LLAMA = Path(__file__).parents[1] / "golden" / "llama" / "llama.F16.gguf"
GEMMA4 = next(Path(__file__).parents[1].glob("golden/*/gemma4*.gguf"))
MIXTRAL = LLAMA.with_name("mixtral.F16.gguf")
NAN, INF = math.nan, math.inf


def header(**changes: Any) -> Header:
    """The golden Llama's header with other values; "__" stands for a dot."""
    found = parse(LLAMA.read_bytes(), None)
    for name, value in changes.items():
        found.metadata[f"llama.{name.replace('__', '.')}"] = value
    return found


def plan(found: Header, factors: list[float] | None = None) -> None:
    planner.make_plan(found, Device(software=True), planner.PlanOptions(64, 16, "f32", factors))


WRONG: list[dict[str, Any]] = [
    {"block_count": 10**7}, {"block_count": 2**31 - 1}, {"block_count": 5000}, {"block_count": 0}, {"block_count": [1]},
    {"attention__key_length": 2**31 - 4}, {"attention__key_length": 1 << 20}, {"attention__key_length": NAN},
    {"embedding_length": 2**31 - 4}, {"feed_forward_length": 2**31 - 4}, {"attention__head_count": 2**31 - 4},
    {"attention__head_count": "x"}, {"attention__head_count_kv": [[1], [2]]}, {"attention__head_count_kv": [2.0] * 9},
    {"expert_count": [1]}, {"expert_count": 2**31 - 1, "expert_used_count": 1}, {"expert_count": -1},
    {"nextn_predict_layers": 10**6}, {"nextn_predict_layers": "x"},
    {"rope__freq_base": 1.0, "rope__scaling__type": "yarn", "rope__scaling__factor": 2.0}, {"rope__freq_base": 0.0},
    {"rope__freq_base": NAN}, {"rope__freq_base": INF}, {"rope__freq_base": [1e4]}, {"rope__freq_base": 0.5},
    {"rope__scaling__factor": -1.0}, {"rope__scaling__factor": NAN}, {"rope__scaling__type": ["yarn"]},
    {"attention__layer_norm_rms_epsilon": NAN}, {"context_length": 0}, {"context_length": 1e9}, {"vocab_size": None},
]  # fmt: skip


@pytest.mark.parametrize("changes", WRONG, ids=str)
def test_metadata_beyond_the_tensors_or_of_the_wrong_type(changes: dict[str, Any]) -> None:
    found = header(**changes)
    if "vocab_size" in changes:
        del found.tensors["token_embd.weight"]
    tracemalloc.start()
    try:
        with pytest.raises(WispError):
            plan(found)
        assert tracemalloc.get_traced_memory()[1] < 20_000_000
    finally:
        tracemalloc.stop()


OF_ARCHITECTURES: list[tuple[str, dict[str, Any]]] = [
    ("gemma/gemma3n", {"altup.active_idx": 1}), ("gemma/gemma3n", {"altup.num_inputs": 9}),
    ("gemma/gemma3n", {"altup.num_inputs": 3}),
    ("gemma/gemma3n", {"attention.sliding_window_pattern": [False] * 20 + [True] * 2}),
    ("gemma/gemma3n", {"embedding_length_per_layer_input": 1 << 20}), ("gemma/gemma3n", {"rope.freq_base_swa": NAN}),
    ("experts/llama4", {"attention.sliding_window": 0}), ("experts/llama4", {"expert_count": 0}),
    ("dense/deci", {"attention.head_count": [3, 4, 0, 0, 2]}),
    ("dense/deci", {"attention.head_count": [0, 4, 0, 0, 2]}),
    ("dense/deci", {"feed_forward_length": [0, 64, 40, 0, 80]}), ("dense/deci", {"attention.head_count_kv": [2, 0]}),
    ("dense/deci", {"attention.head_count_kv": [2, 0, -1, 0, 1]}), ("experts/arctic", {"expert_count": 0}),
    ("experts/grok", {"expert_count": 0}), ("experts/grok", {"logit_scale": NAN}),
    ("experts/mimo2", {"attention.value_length": 28}), ("experts/mimo2", {"attention.value_length": 1 << 20}),
    ("embedding/t5encoder", {"attention.relative_buckets_count": 7}),
    ("embedding/t5encoder", {"attention.relative_buckets_count": 1 << 30}),
    ("encoder_decoder/t5", {"decoder_block_count": 1 << 30}), ("encoder_decoder/t5", {"decoder_block_count": 1}),
    ("encoder_decoder/t5", {"decoder_block_count": 0}), ("encoder_decoder/t5", {"decoder_start_token_id": 304}),
    ("encoder_decoder/t5", {"decoder_start_token_id": True}), ("encoder_decoder/t5", {"decoder_start_token_id": "x"}),
    ("experts/step35", {"attention.head_count_kv": [2, 4, 1]}), ("experts/step35", {"swiglu_clamp_exp": [1.0]}),
    ("experts/step35", {"rope.dimension_count_swa": 26}), ("experts/step35", {"swiglu_clamp_shexp": NAN}),
    ("experts/mimo2", {"attention.head_count_kv": [1, 3, 2, 1]}), ("experts/mimo2", {"attention.value_scale": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("golden", "changes"), OF_ARCHITECTURES, ids=str)
def test_metadata_that_an_architecture_cannot_run(golden: str, changes: dict[str, Any]) -> None:
    found = parse((LLAMA.parents[1] / f"{golden}.F16.gguf").read_bytes(), None)
    found.metadata.update({f"{found.architecture}.{name}": value for name, value in changes.items()})
    with pytest.raises(WispError) as error:
        plan(found)
    assert error.value.code in ("corrupt_header", "unsupported_architecture", "bad_tensor_shape")


@pytest.mark.parametrize("name", ["rope.dimension_count", "rope.dimension_count_swa"])
def test_gemma4_rotates_no_more_than_a_head(name: str) -> None:
    found = parse(GEMMA4.read_bytes(), None)
    plan(found)
    found.metadata[f"gemma4.{name}"] = 2**31 - 4
    with pytest.raises(WispError, match="heads"):
        plan(found)


@pytest.mark.parametrize(
    ("golden", "key", "value"),
    [
        ("grovemoe", "experts_per_group", 4),
        ("grovemoe", "experts_per_group", 1),
        ("grovemoe", "expert_chunk_feed_forward_length", 2**31 - 1),
        ("grovemoe", "expert_group_scale", NAN),
        ("plamo2", "attention.head_count", [4, 0, 2]),
        ("plamo2", "attention.head_count", [[4], 0, 4]),
        ("plamo2", "ssm.time_step_rank", 5),
        ("kimi-linear", "kda.head_dim", 2**31 - 1),
        ("kimi-linear", "ssm.conv_kernel", 1),
        ("kimi-linear", "ssm.conv_kernel", 64),
        ("rwkv7", "wkv.head_size", 24),
        ("rwkv7", "wkv.head_size", 2),
        ("rwkv6qwen2", "attention.head_count_kv", 3),
        ("mistral3", "rope.scaling.yarn_log_multiplier", NAN),
        ("mistral3", "rope.scaling.yarn_log_multiplier", [1.0]),
    ],
)
def test_sizes_of_layers_that_cannot_be(golden: str, key: str, value: float) -> None:
    path = next(Path(__file__).parents[1].glob(f"golden/*/{golden}.F16.gguf"))
    found = parse(path.read_bytes(), None)
    found.metadata[f"{golden}.{key}"] = value
    with pytest.raises(WispError) as error:
        plan(found)
    assert error.value.code == "corrupt_header"


def test_a_later_model_of_kimi_s_is_refused() -> None:
    found = parse(next(Path(__file__).parents[1].glob("golden/*/kimi-linear.F16.gguf")).read_bytes(), None)
    found.tensors["blk.0.attn_gate.weight"] = found.tensors["blk.0.attn_q.weight"]
    with pytest.raises(WispError) as error:
        plan(found)
    assert error.value.code == "unsupported_architecture"


def test_layers_of_experts_with_and_without_gates_are_planned() -> None:
    found = parse(MIXTRAL.read_bytes(), None)
    del found.tensors["blk.1.ffn_gate_exps.weight"]
    plan(found)


def test_the_file_itself_is_planned() -> None:
    plan(header())


@pytest.mark.parametrize("factors", [[0.0] * 4, [NAN] * 4, [-1.0] * 4, [INF] * 4, [1.0] * 3, [1e-300] * 4])
def test_rope_factors_that_are_no_divisors(factors: list[float]) -> None:
    with pytest.raises(WispError) as caught:
        table(RopeSpec(8).frequencies(factors))
    assert caught.value.code == "corrupt_header"


def large(kind: int, element: bytes, count: int) -> bytes:
    """A header with one array of `count` elements."""
    return gguf([ARCH, string("k") + struct.pack("<IIQ", ARRAY, kind, count) + element * count], [])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "element"),
    [(U32, b"\1\2\3\4"), (F32, b"\0\0\1\77"), (U8, b"\7"), (STRING, string("ab")), (STRING, string("é𝒳" * 9))],
)
def test_the_memory_of_a_large_header_is_bounded(kind: int, element: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(parse(large(kind, element, 300_000), None).metadata["k"]) == 300_000  # as long as real ones
    monkeypatch.setattr(gguf_values, "MAX_MEMORY", 4 << 20)
    data = large(kind, element, (4 << 20) // len(element))
    tracemalloc.start()
    try:
        with pytest.raises(WispError, match="memory"):
            parse(data, None)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    with pytest.raises(WispError, match="would end at byte"):
        parse(gguf([ARCH, string("k") + struct.pack("<IIQ", ARRAY, U8, gguf_values.MAX_HEADER)], []), None)


@pytest.mark.parametrize("value", ["x", [1], 1.5, True, -1, 1 << 40])
@pytest.mark.parametrize("name", ["split.count", "split.no"])
def test_numbers_of_split_files_are_checked(name: str, value: Any) -> None:
    found = header()
    found.metadata[name] = value
    with pytest.raises(WispError) as error:
        Parts.of([], [found])
    assert error.value.code == "corrupt_header"


@pytest.mark.parametrize("value", ["x", [1], INF, -1])
@pytest.mark.parametrize("name", ["embedding_length", "n_deepstack_layers"])
def test_the_width_that_projectors_must_have_is_checked(name: str, value: Any) -> None:
    with pytest.raises(WispError) as error:
        prompt_rows(vocabulary("x", header(**{name: value}), {}))
    assert error.value.code == "corrupt_header"


@pytest.mark.parametrize("value", ["x", [-1, 2], [1, -1], [-1, 1, 1], [-1, True], [-1, 0]])
def test_layers_for_parts_of_embeddings_are_checked(value: Any) -> None:
    with pytest.raises(WispError) as error:
        deepstack(header(deepstack_mapping=value))
    assert error.value.code == "corrupt_header"


def test_arrays_within_arrays_have_a_limit() -> None:
    for count in (MAX_ARRAYS, MAX_ARRAYS + 1):
        outer = string("k") + struct.pack("<IIQ", ARRAY, ARRAY, count)
        data = gguf([outer + struct.pack("<IQ", STRING, 0) * count], [])
        if count <= MAX_ARRAYS:
            assert len(parse(data, None).metadata["k"]) == count
            continue
        with pytest.raises(WispError, match="its metadata has more than 65536 arrays within arrays") as caught:
            parse(data, None)
        assert caught.value.code == "corrupt_header"
