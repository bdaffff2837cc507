"""Calls masked.js, which samples tokens of sequences step by step, each with the mask after the one before."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from pyodide.ffi import create_proxy, to_js

from py_engine.gpu.gpu import Gpu
from py_engine.gpu.memory import obj
from py_engine.plan.sampler_ops import Rules
from py_engine.plan.sampling import Batch
from py_engine.runners import MaskedRow, MaskedTokens


async def sample(gpu: Gpu, rules: Rules, rows: Sequence[MaskedRow], **options: Any) -> tuple[float, list[MaskedTokens]]:
    """Sample tokens of rows; returns the steps' milliseconds and each row's tokens. `options`: of masked.js."""
    buffer, offset, _ = gpu.places["rules"]
    fetches = [create_proxy(partial(_ids_for_js, row.fetch_forced)) if row.fetch_forced else None for row in rows]
    masked = [
        {
            "seq": row.row.seq,
            "position": row.row.position,
            "source": row.source,
            "offset": offset + rules.mask(row.row.seq),
            "forced": list(row.forced),
            "fetchForced": fetch,
        }
        for row, fetch in zip(rows, fetches, strict=True)
    ]
    try:
        found = await gpu.replay.masking.sample(obj(rows=masked, buffer=buffer, words=rules.bit_words, **options))
    except Exception as error:
        raise await gpu.cause(error) from None
    finally:
        for fetch in fetches:
            if fetch is not None:
                fetch.destroy()
    return float(found.ms), [_tokens(row) for row in found.rows]


async def _ids_for_js(fetch: Callable[[], Awaitable[list[int] | None]]) -> Any:
    ids = await fetch()
    return None if ids is None else to_js(ids)


def _tokens(row: Any) -> MaskedTokens:
    ids, changed, forced = (part.to_py() for part in (row.ids, row.changed, row.forced))
    return MaskedTokens(Batch(ids), changed, forced, bool(row.ended), str(row.error), float(row.maskMs))
