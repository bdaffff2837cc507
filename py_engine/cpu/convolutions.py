"""Convolutions with numpy, as the kernels of wgsl/ of the same names compute them."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call

SIDE = 3  # of the kernels of subsample
AT_ONCE = 32  # channels that subsample computes at once: a minute of sound then takes tens of MB


def unfold(c: Call) -> None:
    cols, count = c.params["COLS"], c.params["TAPS"]
    rows = c["taps"][: c.n, :count, 0].astype(np.int64)
    weights = np.ascontiguousarray(c["taps"][: c.n, :count, 1]).view(np.float32)
    found = np.where(weights[..., None] != 0, c["x"][np.where(weights != 0, rows, 0), :cols], np.float32(0))
    found = found * weights[..., None]  # (n, taps, cols)
    c["y"][: c.n, : cols * count] = found.transpose(0, 2, 1).reshape(c.n, cols * count)


def depthwise(c: Call) -> None:
    cols, count = c.params["CHANNELS"], c.params["TAPS"]
    kernel = c["w"][np.arange(cols)]
    total = np.zeros((c.n, cols), np.float32)
    for t in range(count):
        weights = np.ascontiguousarray(c["taps"][: c.n, t, 1]).view(np.float32)
        rows = np.where(weights != 0, c["taps"][: c.n, t, 0], 0).astype(np.int64)
        x = np.where(weights[:, None] != 0, c["x"][rows, :cols], np.float32(0))
        total += weights[:, None] * kernel[:, t] * x
    if c.params["TERMS"]:
        first, *norm = c["terms"][0].reshape(-1, cols)
        if len(norm) == 3:  # a batch norm whose mean comes first
            total = (total - first) / np.sqrt(norm.pop(0))
        else:
            total += first
        if norm:
            total = total * norm[0] + norm[1]
    c["y"][: c.n, :cols] = total


def subsample(c: Call) -> None:
    channels, bins, frames = c.params["CHANNELS"], c.params["BINS"], int(c["length"][0])
    kernels = c["w"][np.arange(2 * channels)].reshape(2, channels, SIDE * SIDE)
    biases = c["biases"][0].reshape(2, channels)
    x = c["x"].reshape(-1, c.consts["x_stride"])[:frames, :bins, None]
    y = c["y"].reshape(-1, c.consts["y_stride"] // c.consts["part_stride"], c.consts["part_stride"])
    for at in range(0, channels, AT_ONCE):
        some = slice(at, min(at + AT_ONCE, channels))
        found = np.maximum(_halved(x, kernels[0, some], biases[0, some]), 0)
        y[: c.n, :, some] = _halved(found, kernels[1, some], biases[1, some])[: c.n]


def _halved(x: Array, kernel: Array, bias: Array) -> Array:
    """A convolution with stride 2, padded by 1, of each channel on its own: (rows / 2, columns / 2, channels).

    `kernel`: (channels, 9). One channel of x is that of every result.
    """
    rows, columns = (-(-size // 2) for size in x.shape[:2])
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    total = np.broadcast_to(bias, (rows, columns, len(kernel))).copy()
    for place in range(SIDE * SIDE):
        row, column = divmod(place, SIDE)
        total += padded[row::2, column::2][:rows, :columns] * kernel[:, place]
    return total


def shortconv_all(c: Call) -> None:
    cols, size = c.params["COLS"], c.params["KERNEL_SIZE"]
    x, weight = c["x"][: c.n], c["weights"].reshape(cols, size)
    bz, begins = x[:, :cols] * x[:, 2 * cols : 3 * cols], c.positions - c.offsets
    total = np.zeros_like(bz)
    for k in range(size):
        other = np.arange(c.n) + k - size // 2
        inside = np.clip(other, 0, c.n - 1)
        seen = (other == inside) & (begins[inside] == begins)
        total += np.where(seen[:, None], bz[inside] * weight[:, k], np.float32(0))
    c["y"][: c.n, :cols] = x[:, cols : 2 * cols] * total


def shortconv(c: Call) -> None:
    cols, size, cache = c.params["COLS"], c.params["KERNEL_SIZE"], c["conv_cache"]
    x, weight = c["x"][: c.n], c["weights"].reshape(cols, size)
    bz = x[:, :cols] * x[:, 2 * cols : 3 * cols]
    total = bz * weight[:, -1]
    pos, seq, offsets = c.positions, c.sequences, c.offsets
    in_batch = {(int(s), int(p)): m for m, (s, p) in enumerate(zip(seq, pos, strict=True))}
    for back in range(1, size):
        earlier = cache[c.rows_of(np.maximum(pos - back, 0), seq)].astype(np.float32)
        for m in range(c.n):
            if (other := in_batch.get((int(seq[m]), int(pos[m]) - back))) is not None:
                earlier[m] = bz[other].astype(cache.dtype)
        total += np.where((offsets >= back)[:, None], earlier * weight[:, size - 1 - back], np.float32(0))
    cache[c.rows_of(pos, seq)] = bz
    c["y"][: c.n, :cols] = x[:, cols : 2 * cols] * total
