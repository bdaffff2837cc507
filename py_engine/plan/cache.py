"""Where the keys and values of one layer lie.

kind   "f16" or "f32": (rows, kv_rows) of that type. "q8_0": groups of 32 as signed bytes with one f32 step each; a
       buffer holds the bytes of all rows, then the steps of all rows. A batch is first written as f32, to `staged`.
ring   a layer with a sliding window keeps only as many rows as the window needs: position s lies in row s % ring.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.plan.plan import Buffer, Plan
from py_engine.plan.shared import MAX_STEPS

KINDS = ("f16", "f32", "q8_0")
GROUP = 32  # values that share a step
AHEAD = 4 * MAX_STEPS  # positions that the GPU may have written after the last one that was read


def slack(batch: int) -> int:
    """Rows of a ring beside its window: a batch is stored before its first token looks back, and what was generated in
    vain must not have overwritten what the tokens before it see.
    """
    return max(batch, AHEAD) + AHEAD


@dataclass(frozen=True)
class Cache:
    """Keys and values of one layer. `rows`: of a sequence; the buffers' shape is that of one, too."""

    k: Buffer
    v: Buffer
    kind: str
    rows: int
    ring: int = 0
    staged: tuple[Buffer, Buffer] | None = None

    @property
    def written(self) -> dict[str, Buffer]:
        """What the kernels that compute keys and values bind."""
        k, v = self.staged or (self.k, self.v)
        return {"k_cache": k, "v_cache": v}

    @property
    def read(self) -> dict[str, Buffer]:
        """What attention binds."""
        return {"k_cache": self.k, "v_cache": self.v}

    @property
    def fresh(self) -> dict[str, Buffer]:
        """A batch's keys and values on their way into a q8_0 cache."""
        assert self.staged is not None
        return {"k_new": self.staged[0], "v_new": self.staged[1]}

    @property
    def layout(self) -> dict[str, int | str]:
        """The #params of kv_rows.wgsl."""
        return {"KV": self.kind, "RING": self.ring, "KV_ROWS": self.rows}


def make_cache(plan: Plan, layer: int, cols: int, kind: str, window: int, spare: int) -> Cache:
    """The cache of a layer with `cols` values a position: rows for the whole context, or for its window and `spare`
    more. WispError where the kind cannot hold such rows.
    """
    if kind == "q8_0" and cols % GROUP:
        raise WispError(
            f"A q8_0 cache needs key/value rows of whole groups of {GROUP}; this model's have {cols}. Load it with "
            'kvType "f16".',
            "invalid_value",
            param="kvType",
        )
    ring = window + spare if window and window + spare < plan.n_ctx else 0
    rows = ring or plan.n_ctx

    def buffer(name: str, shape: tuple[int, ...], dtype: str) -> Buffer:
        return plan.buffers.setdefault(name, Buffer(name, shape, dtype, "kv"))

    if kind != "q8_0":
        return Cache(
            buffer(f"k.{layer}", (rows, cols), kind), buffer(f"v.{layer}", (rows, cols), kind), kind, rows, ring
        )
    rows = -(-rows // 4) * 4  # so that those of every sequence begin where four words do
    words = (rows, cols // 4 + cols // GROUP)
    staged = buffer("k.staged", (plan.batch, cols), "f32"), buffer("v.staged", (plan.batch, cols), "f32")
    return Cache(buffer(f"k.{layer}", words, "u32"), buffer(f"v.{layer}", words, "u32"), kind, rows, ring, staged)


def make_conv_cache(plan: Plan, layer: int, cols: int, kind: str, taps: int, spare: int) -> Cache:
    """What a layer's short convolution is of, in place of keys and of values: rows for the last `taps` positions and
    `spare` more, in f32 or f16.
    """
    ring = taps + spare if taps + spare < plan.n_ctx else 0
    rows, kind = ring or plan.n_ctx, "f32" if kind == "f32" else "f16"
    buffer = plan.buffers.setdefault(f"conv.{layer}", Buffer(f"conv.{layer}", (rows, cols), kind, "kv"))
    return Cache(buffer, buffer, kind, rows, ring)
