"""Media in prompts: embeddings of pictures and sounds in place of tokens.

In a sequence's tokens an id from FIRST_MEDIA_ID on stands for an embedding. The list MEDIA is PREFILL for batches that
have such ids: the host writes their embeddings to the buffer "media", a row per token of the batch, and a record for
each token to the state buffer (wgsl/lib/media.wgsl). An embedding may have further parts of the same width; part k is
added to the hidden state after layer k - 1 (deepstack, Meng et al. 2024).
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from py_engine.errors import WispError
from py_engine.plan.kernels import has_param
from py_engine.plan.lists import MEDIA
from py_engine.plan.ops import Ops
from py_engine.plan.pages import record_index
from py_engine.plan.plan import Buffer, Op, PerToken, Plan
from py_engine.plan.rope import media_table
from py_engine.plan.shared_constants import THREADS


@dataclass(frozen=True)
class MediaRows:
    """Embeddings for `count` tokens of a batch, from its token `token` on: rows of `values` from `first` on.

    `values`: float32 (rows * width,), a Float32Array or, on the CPU, a numpy array of any shape.
    """

    token: int
    values: Any
    first: int
    count: int


@dataclass(frozen=True)
class MediaBatch:
    """What a batch with media has besides its ids.

    `records`: u32 (tokens, RECORD_WORDS): the position after the last one that the token sees; its rotary positions in
    time, down and across, and its picture's number.
    """

    records: array[int]
    rows: list[MediaRows]


def add_list(ops: Ops, layers: list[tuple[int, Buffer]], width: int, n_embd: int) -> None:
    """Add the list MEDIA to the plan of PREFILL's `ops`, with its adapters.

    `layers`: the index of the op after each of the layers that have a part of their own, and the hidden state. `width`:
    values of an embedding.
    """
    plan = ops.plan
    expected = n_embd * (1 + len(layers))
    if width != expected:
        raise WispError(
            f"The projector makes embeddings of {width} values, but this model reads {expected}. Load the projector "
            "that belongs to the model.",
            "projector_mismatch",
            param="projector",
        )
    media = ops.buffer("media", (plan.batch, width), "f32", "state")
    params = {"MEDIA": 1, "RECORDS": record_index(plan.n_ctx, plan.page)}
    added = {at: (x, part) for part, (at, x) in enumerate(layers, 1)}
    found: list[Op] = []
    for at, op in enumerate([*ops.ops, None]):
        if at in added:
            x, part = added[at]
            found.append(_add_part(ops, x, media, part * n_embd, n_embd))
        if op is not None:
            found.append(_with_media(plan, op, params, media))
    plan.lists[ops.list_of(MEDIA)] = found
    plan.lazy.add(ops.list_of(MEDIA))
    plan.media_width = width


def token_rows(ops: list[Op]) -> list[Op]:
    """The ops that look up what embeddings of media take the place of, and those before, which choose the tokens.

    What scales embeddings of media scales the tokens' later, too; rows of positions are added to both later.
    """
    first = next(at for at, op in enumerate(ops) if op.kernel == "embed")
    found = takewhile(lambda op: op.kernel == "embed" and op.params["ROW"] == "token", ops[first:])
    rows = [replace(op, consts=op.consts | {"scale": 1.0}) if _scales_media(op) else op for op in found]
    return [*ops[:first], *rows]


def _scales_media(op: Op) -> bool:
    return op.params.get("MEDIA_ROW") == "scaled"


def _with_media(plan: Plan, op: Op, params: dict[str, int], media: Buffer) -> Op:
    """A PREFILL op for batches with media."""
    if not has_param(op.kernel, "MEDIA"):
        return op
    bindings = dict(op.bindings)
    if op.params.get("MEDIA_ROW", "first") != "first":
        params = params | {"MEDIA_WIDTH": media.shape[1]}
        bindings["media"] = media
    freqs = bindings.get("rope_freqs")
    if isinstance(freqs, Buffer) and media_table(freqs.name) in plan.buffers:
        bindings["rope_freqs"] = plan.buffers[media_table(freqs.name)]
    return replace(op, params=op.params | params, bindings=bindings)


def _add_part(ops: Ops, x: Buffer, media: Buffer, first: int, n_embd: int) -> Op:
    return Op(
        "add_media",
        {"VECS": n_embd // 4, "MEDIA_WIDTH": media.shape[1], "TOKENS": ops.tokens.shape[1], **ops.state_params},
        {"first": first, "stride": x.shape[1]},
        {"state": ops.state, "tokens": ops.tokens, "media": media, "x": x},
        (-(-n_embd // (4 * THREADS)), PerToken(), 1),
    )


def keep_of_media(ops: Ops, y: Buffer, of_media: Buffer, cols: int) -> None:
    """Set y to `of_media`, of the same width, where tokens are of media. What is in `of_media` is lost."""
    ops.add_scaled(y, -1.0, of_media)
    ops.ops.append(_add_part(ops, y, of_media, 0, cols))
