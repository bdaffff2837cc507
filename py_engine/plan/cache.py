"""Where the keys and values of one layer lie.

kind   "f16" or "f32": (rows, cols) of that type. "q8_0": groups of 32 signed bytes with one f32 scale each; a buffer
       holds the bytes of all rows, then the scales of all rows. A batch is first written as f32, to `staged`.
ring   A layer with a sliding window keeps only the rows that the window needs: position p lies in row p % ring.
"""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.plan.plan import Buffer, Plan
from py_engine.plan.shared import MAX_STEPS

KINDS = ("f16", "f32", "q8_0")
GROUP = 32  # values that share a scale
LOOKAHEAD = 4 * MAX_STEPS  # positions that the GPU may have written after the last token read back


def ring_slack(batch: int) -> int:
    """Rows that a ring has beyond its window.

    A batch is stored before its first token attends, and tokens that are dropped later must not overwrite rows that
    earlier tokens attend to.
    """
    return max(batch, LOOKAHEAD) + LOOKAHEAD


@dataclass(frozen=True)
class Cache:
    """Keys and values of one layer. `rows` and the buffers' shapes are those of one sequence."""

    k: Buffer
    v: Buffer
    kind: str
    rows: int
    ring: int = 0
    staged: tuple[Buffer, Buffer] | None = None

    @property
    def write_bindings(self) -> dict[str, Buffer]:
        """The buffers that the kernels computing keys and values write."""
        k, v = self.staged or (self.k, self.v)
        return {"k_cache": k, "v_cache": v}

    @property
    def read_bindings(self) -> dict[str, Buffer]:
        """The buffers that attention reads."""
        return {"k_cache": self.k, "v_cache": self.v}

    @property
    def staged_bindings(self) -> dict[str, Buffer]:
        """A batch's keys and values in f32, before they are quantized into a q8_0 cache."""
        assert self.staged is not None
        return {"k_new": self.staged[0], "v_new": self.staged[1]}

    @property
    def layout(self) -> dict[str, int | str]:
        """The #params of kv_rows.wgsl."""
        return {"KV": self.kind, "RING": self.ring, "KV_ROWS": self.rows}


def make_cache(plan: Plan, layer: int, cols: int, kind: str, window: int, slack: int) -> Cache:
    """Create the cache of a layer with `cols` values per position.

    It has rows for the whole context or, with a window, for the window and `slack` more. WispError if rows of `cols`
    values cannot be stored as `kind`.
    """
    if kind == "q8_0" and cols % GROUP:
        raise WispError(
            f"A q8_0 cache needs key/value rows of whole groups of {GROUP}; this model's have {cols}. Load it with "
            'kvType "f16".',
            "invalid_value",
            param="kvType",
        )
    ring = window + slack if window and window + slack < plan.n_ctx else 0
    rows = ring or plan.n_ctx

    def buffer(name: str, shape: tuple[int, ...], dtype: str) -> Buffer:
        return plan.buffers.setdefault(name, Buffer(name, shape, dtype, "kv"))

    if kind != "q8_0":
        return Cache(
            buffer(f"k.{layer}", (rows, cols), kind), buffer(f"v.{layer}", (rows, cols), kind), kind, rows, ring
        )
    rows = -(-rows // 4) * 4  # aligns every sequence's rows to 16 bytes
    words = (rows, cols // 4 + cols // GROUP)
    staged = buffer("k.staged", (plan.batch, cols), "f32"), buffer("v.staged", (plan.batch, cols), "f32")
    return Cache(buffer(f"k.{layer}", words, "u32"), buffer(f"v.{layer}", words, "u32"), kind, rows, ring, staged)


def make_conv_cache(plan: Plan, layer: int, cols: int, kind: str, kernel_size: int, slack: int) -> Cache:
    """Create the cache of a short convolution's inputs: rows for `kernel_size` positions and `slack` more, f32 or f16.

    It replaces a KV cache: `k` and `v` are the same buffer.
    """
    ring = kernel_size + slack if kernel_size + slack < plan.n_ctx else 0
    rows, kind = ring or plan.n_ctx, "f32" if kind == "f32" else "f16"
    buffer = plan.buffers.setdefault(f"conv.{layer}", Buffer(f"conv.{layer}", (rows, cols), kind, "kv"))
    return Cache(buffer, buffer, kind, rows, ring)
