"""The ops of LFM2's short convolution. Shapes as in ops.py."""

from __future__ import annotations

from py_engine.plan.cache import Cache
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.shared_constants import THREADS


def shortconv(ops: Ops, x: Buffer, weights: Weight, cache: Cache, cols: int) -> Buffer:
    """Gated causal convolution along the sequence, one per channel: (n, cols).

    x (n, 3 * cols) holds b, c and z; the result is c * conv(b * z) with `weights` (cols, kernel size). `cache.k`
    (rows, cols) holds b * z by position.
    """
    y = ops.rows("mixed", cols)
    ops.add(
        "shortconv",
        {"COLS": cols, "KERNEL_SIZE": weights.cols // cols} | cache.layout | ops.state_params,
        {"x_stride": x.shape[1], "y_stride": y.shape[1]},
        {"state": ops.state, "x": x, "weights": weights, "conv_cache": cache.k, "y": y},
        -(-cols // (2 * THREADS)),
        PerToken(),
    )
    return y


def shortconv_all(ops: Ops, x: Buffer, weights: Weight, cols: int) -> Buffer:
    """The convolution of an encoder, whose tokens also see later ones: as shortconv(), but centred, without a cache."""
    y = ops.rows("mixed", cols)
    ops.add(
        "shortconv_all",
        {"COLS": cols, "KERNEL_SIZE": weights.cols // cols},
        {"x_stride": x.shape[1], "y_stride": y.shape[1]},
        {"state": ops.state, "x": x, "weights": weights, "y": y},
        -(-cols // THREADS),
        PerToken(),
    )
    return y
