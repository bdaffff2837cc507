"""Random damage to the headers of the goldens' models: wrong types and values of keys, and flipped bytes.

A header that parses is then read as the model's hyperparameters, planned, and its tokenizer made.
"""

import math
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from app.models.loading import vocabulary
from py_engine import planner
from py_engine.errors import CODES, WispError
from py_engine.files.gguf_header import Header, parse
from py_engine.files.gguf_values import NeedMoreBytes
from py_engine.models.families import FAMILIES, family
from py_engine.plan.kernels import Device
from tests.support.gguf_bytes import ARRAY, BOOL, F32, I32, I64, MINI, STRING, U8, U32, U64, gguf, key, tensor

GOLDEN = Path(__file__).parents[1] / "golden"
NUMBERS = (0, 1, 2, 3, 7, 64, 4096, 10**6, 10**7, 2**31 - 4, 2**31, 2**32 - 1)
FLOATS = (0.0, -1.0, 1.0, 1e-38, 3e38, math.nan, math.inf, -math.inf, 0.5)
VALUES: tuple[tuple[int, Any], ...] = (
    *((U32, n) for n in NUMBERS), *((F32, x) for x in FLOATS), (U64, 2**64 - 1), (I32, -1), (BOOL, True),
    (STRING, ""), (STRING, "yarn"), (STRING, "linear"), (STRING, "longrope"), (STRING, "x" * 5000), (ARRAY, (U32, [])),
    (ARRAY, (U32, [2] * 40)), (ARRAY, (I32, [-1] * 40)), (ARRAY, (F32, [math.nan] * 3)), (ARRAY, (STRING, ["a"] * 3)),
    (ARRAY, (ARRAY, [(U8, [1]), (U8, [])])), (ARRAY, (BOOL, [True, False] * 20)),
)  # fmt: skip


def words(text: str) -> list[str]:
    """The words of a text."""
    return text.split()


EXTRA = words(
    "rope.scaling.type rope.scaling.factor rope.scaling.original_context_length rope.scaling.yarn_log_multiplier "
    "rope.scaling.attn_factor rope.scaling.yarn_beta_fast rope.freq_base rope.freq_base_swa rope.dimension_count "
    "rope.dimension_sections attention.key_length attention.value_length attention.head_count_kv attention.causal "
    "attention.sliding_window attention.sliding_window_pattern expert_count expert_used_count expert_gating_func "
    "expert_group_count expert_weights_scale nextn_predict_layers vocab_size pooling_type shortconv.l_cache "
    "final_logit_softcapping attn_logit_softcapping hidden_activation"
)
TOKENIZER = words(
    "model pre tokens scores token_type merges bos_token_id eos_token_id unknown_token_id padding_token_id "
    "add_bos_token add_space_prefix precompiled_charsmap"
)


@cache
def models() -> list[tuple[Header, bytes]]:
    """(header, its bytes) of one file of each family."""
    found: dict[str, tuple[Header, bytes]] = {}
    for path in [MINI, *sorted(GOLDEN.glob("*/*.gguf"))]:
        data = path.read_bytes()
        header = parse(data, None)
        if header.tensors and "general.architecture" in header.metadata:
            found.setdefault(header.architecture, (header, data[: header.data_offset]))
    return list(found.values())


def case(rng: Random) -> bytes:
    """A damaged header."""
    header, data = rng.choice(models())
    if rng.random() < 0.2:  # flipped bytes
        damaged = bytearray(data)
        for _ in range(rng.randrange(1, 6)):
            damaged[rng.randrange(len(damaged) if rng.random() < 0.3 else min(2000, len(damaged)))] = rng.randrange(256)
        return bytes(damaged)
    metadata = {name: given for name, given in header.metadata.items() if len(str(given)) < 10_000}
    if rng.random() < 0.3:
        metadata = header.metadata
    architecture = header.architecture if rng.random() < 0.8 else rng.choice(list(FAMILIES))
    changes: dict[str, tuple[int, Any]] = {}
    own = [name for name in metadata if name.startswith(header.architecture)]
    names = [*own * 2, *(f"{architecture}.{name}" for name in EXTRA), *(f"tokenizer.ggml.{name}" for name in TOKENIZER)]
    for _ in range(rng.randrange(1, 4)):
        changes[rng.choice(names)] = rng.choice(VALUES)
    keys = [key(name, *changes.pop(name, typed(given))) for name, given in metadata.items()]
    keys += [key(name, *given) for name, given in changes.items()]
    tensors = []
    for info in header.tensors.values():
        shape, name = info.shape, info.name
        if rng.random() < 0.005:
            shape = rng.choice(((), (1,), shape[::-1], (*shape, 2)[:4], shape[:1], (0, *shape[1:])))
        if rng.random() < 0.005:
            name = rng.choice((f"blk.{rng.choice(NUMBERS)}.attn_q.weight", "rope_freqs.weight", "x"))
        tensors.append(tensor(name, shape, int(info.type), info.offset))
    return gguf(keys, tensors)


def integer_type(numbers: list[int]) -> int:
    """The smallest of GGUF's types that metadata use for such integers and that holds all of them."""
    if min(numbers, default=0) < 0:
        return I32 if min(numbers) >= -(1 << 31) and max(numbers) < 1 << 31 else I64
    return U32 if max(numbers, default=0) < 1 << 32 else U64


def typed(given: Any) -> tuple[int, Any]:
    """A metadata value with a GGUF type that holds it."""
    if isinstance(given, bool):
        return BOOL, given
    if isinstance(given, int):
        return integer_type([given]), given
    if isinstance(given, list):
        first = given[0] if given else 0
        return ARRAY, (integer_type(given) if type(first) is int else typed(first)[0], given)
    return (STRING, given) if isinstance(given, str) else (F32, given)


def run(data: bytes) -> None:
    """Parse, plan, and make the tokenizer."""
    try:
        header = parse(data, None)
    except (WispError, NeedMoreBytes) as error:
        if isinstance(error, WispError) and error.code not in CODES:
            raise AssertionError(error.code) from error
        return
    for use in (plan, lambda header: vocabulary("x", header, {}).tokenizer.encode("Hello <s> 12345 wörld", True, True)):
        try:
            use(header)
        except WispError as error:
            if error.code not in CODES:
                raise AssertionError(error.code) from error


def plan(header: Header) -> None:
    """Plan the model for a context of 64 tokens, with random RoPE factors."""
    cfg = family(header).Config.from_gguf(header)
    factors = Random(len(header.metadata)).choice(([0.0] * 4, [math.nan] * 8, None, None, None, None))
    options = planner.PlanOptions(min(64, cfg.context_length), 16, "f32", factors)
    planner.make_plan(header, Device(software=True), options)
