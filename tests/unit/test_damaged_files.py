"""Damage to files that the fuzzers found: each ends with a clean error, before much is read or allocated."""

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header, TensorInfo
from py_engine.files.parts import Parts
from py_engine.files.records import MAX_FILE, plan_records
from py_engine.files.tensor_types import TensorType
from py_engine.load_plan import MAX_FACTORS, plan_for
from py_engine.models.common import MAX_BLOCKS, deepstack, rope_factors
from py_engine.options import LoadOptions
from tests.support.cpu_models import header

OPTIONS = LoadOptions(backend="cpu", context_length=64)


class Unread:
    """A file whose data must not be read."""

    local, size = True, 1 << 30

    async def read(self, offset: int, length: int) -> bytes:
        raise AssertionError(f"{length} bytes are read")


async def plan(found: Header) -> None:
    source: Any = Unread()
    await plan_for(Parts.of(source, found), None, OPTIONS)


async def test_rope_factors_are_not_read_where_they_are_too_many() -> None:
    found = header("llama/llama.F16")
    count = MAX_FACTORS + 1
    found.tensors["rope_freqs.weight"] = TensorInfo("rope_freqs.weight", (count,), TensorType.F32, 0, 4 * count)
    with pytest.raises(WispError, match=r"^The GGUF file has 4097 RoPE factors") as error:
        await plan(found)
    assert (error.value.code, error.value.param) == ("corrupt_header", None)
    source: Any = Unread()
    parts = Parts.of([source, source], [header("llama/llama.F16"), found], draft_files=1)
    with pytest.raises(WispError, match=r"^The draft model's file has 4097 RoPE factors") as error:
        await plan_for(parts, None, OPTIONS)
    assert (error.value.code, error.value.param) == ("corrupt_header", "draft")


@pytest.mark.parametrize("missing", ["short", "long"])
async def test_rope_factors_may_be_there_for_one_length_alone(missing: str) -> None:
    found = header("phi3/phi3-longrope-long.F16")
    there = "long" if missing == "short" else "short"
    for n_ctx in (16, 1 << 20):
        assert rope_factors(found, n_ctx) in found.tensors
    del found.tensors[f"rope_factors_{missing}.weight"]
    assert {rope_factors(found, n_ctx) for n_ctx in (16, 1 << 20)} == {None, f"rope_factors_{there}.weight"}


def test_a_server_may_state_any_size() -> None:
    found = header("llama/llama.F16")
    tracemalloc.start()
    try:
        with pytest.raises(WispError, match="TiB") as error:
            plan_records(found, MAX_FILE + 1)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    assert error.value.code == "model_too_large"


async def test_smallthinker_needs_experts() -> None:
    found = header("experts/smallthinker.F16")
    await plan(found)
    found.metadata["smallthinker.expert_count"] = 0
    with pytest.raises(WispError) as error:
        await plan(found)
    assert error.value.code == "unsupported_architecture"


async def test_norms_within_blocks_are_as_wide_as_what_they_normalise() -> None:
    found = header("dense/bitnet.F16")
    one, other = "blk.0.attn_sub_norm.weight", "blk.0.ffn_sub_norm.weight"
    tensors = found.tensors | {one: found.tensors[other], other: found.tensors[one]}
    with pytest.raises(WispError, match="sub_norm") as error:
        await plan(replace(found, tensors=tensors))
    assert error.value.code == "bad_tensor_shape"


def test_the_layers_that_get_parts_of_embeddings_are_bounded() -> None:
    found = header("llama/llama.F16")
    found.metadata["llama.n_deepstack_layers"] = MAX_BLOCKS
    assert len(deepstack(found)) == MAX_BLOCKS
    found.metadata["llama.n_deepstack_layers"] = (1 << 31) - 1
    with pytest.raises(WispError, match="at most 1024") as error:
        deepstack(found)
    assert error.value.code == "corrupt_header"
