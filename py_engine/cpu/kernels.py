"""The kernels with numpy: the fallback without WebGPU, and the oracle of the kernel tests.

Each function is the twin of the kernel of the same name in wgsl/. Weights are float32 (rows, cols).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from py_engine.cpu.adapters import add_direction, add_expert_low_rank, add_low_rank, expert_low_rank
from py_engine.cpu.altup import altup_correct, altup_predict, copy_columns, laurel, sparse_gate
from py_engine.cpu.attention import (
    attention_combine,
    attention_decode,
    kv_quantize,
    norm_rope_append,
    relative_attention,
    relative_attention_all,
    rope_append,
    scale_queries,
)
from py_engine.cpu.call import Call
from py_engine.cpu.compressed import compress, compressed_attention, window_append
from py_engine.cpu.convolutions import depthwise, shortconv, shortconv_all, subsample, unfold
from py_engine.cpu.experts import experts, group_experts, route, weighted_sum
from py_engine.cpu.hyper_connections import (
    attend_streams,
    merge_streams,
    mix_streams,
    norm_streams,
    remix_streams,
    spread_streams,
)
from py_engine.cpu.index import index_append, index_choose, index_join, index_join_raw, index_scores
from py_engine.cpu.latent import head_products, head_products_transposed, latent_append, latent_expansion
from py_engine.cpu.mtp import map_logits, mtp_input, store_hidden
from py_engine.cpu.ngrams import embed_ngrams, gate_ngrams
from py_engine.cpu.numerics import ACTIVATIONS, capped, gated, limits_of, normed, xielu
from py_engine.cpu.products import matmul, matvec, matvec_small_batch, quantize_rows
from py_engine.cpu.sampling import (
    advance,
    draft_rows,
    draft_states,
    logprobs,
    nothing,
    sample,
    sample_best,
    sample_draw,
    sample_shape,
)
from py_engine.cpu.split_attention import attention, attention_merge
from py_engine.cpu.ssm import gated_norm, ssm_conv, ssm_scan, ssm_window
from py_engine.cpu.wkv import token_shift, wkv7_inputs, wkv_output, wkv_scan
from py_engine.plan.shared_constants import FIRST_MEDIA_ID


def embed(c: Call) -> None:
    kind = c.params["ROW"]
    at = c["tokens"][c.sequences, c.token_indices].astype(np.int64) if kind == "token" else c.offsets
    rows = (at if kind != "first" else at * 0) - c.consts["row0"]
    present = (rows >= 0) & (rows < c.consts["rows"])
    x, cols = c["x"][: c.n], c.params["COLS"]
    if kind == "token" and c.params.get("MEDIA"):
        media = at >= FIRST_MEDIA_ID
        if c.params["MEDIA_ROW"] != "first":
            scale = np.float32(c.consts["scale"] if c.params["MEDIA_ROW"] == "scaled" else 1)
            x[media, :cols] = c["media"][: c.n][media, :cols] * scale
        elif not c.consts["row0"]:
            x[media, :cols] = c["w"][0] * np.float32(c.consts["scale"])
    w = c["w"][rows[present]] * np.float32(c.consts["scale"])
    x[present, :cols] = w if kind == "token" else x[present, :cols] + w


def switch_adapters(c: Call) -> None:
    control, count, others = c["control"].reshape(-1), c.params["ADAPTERS"], np.float32(c.consts["others"])
    for m, (seq, last, offset) in enumerate(zip(c.sequences, c.positions, c.offsets, strict=True)):
        tokens = c["tokens"][seq, last - offset : last + 1]
        numbers = np.max((tokens[:, None] == control[:count]) * np.arange(1, count + 1), axis=1)
        found, number = np.float32(np.count_nonzero(numbers)), numbers[-1]
        mean = np.float32(numbers.sum()) / (found + others * np.float32(len(tokens) - found))
        c["embedded"][seq, last] = control[count + number - 1] if number else tokens[-1]
        c["chosen"][m], c["weights"][m] = min(count, int(np.floor(mean + np.float32(0.5)))), 1


def add_media(c: Call) -> None:
    media = c["tokens"][c.sequences, c.positions] >= FIRST_MEDIA_ID
    first, cols = c.consts["first"], 4 * c.params["VECS"]
    c["x"][: c.n][media, :cols] += c["media"][: c.n][media, first : first + cols]


def norm(c: Call) -> None:
    cols, groups = c.params["COLS"], c.grid[1]
    width = cols if groups == 1 else -(-cols // 32) * 32  # groups are beside each other, each padded
    x, y = (c[name].reshape(-1)[: c.n * groups * width] if groups > 1 else c[name][: c.n, :cols] for name in ("x", "y"))
    if groups > 1:
        x, y = (values.reshape(c.n, groups, width)[..., :cols] for values in (x, y))
    if c.params["MEAN"]:
        x = x - x.mean(axis=-1, keepdims=True, dtype=np.float32)
    out = normed(x, c["norm"][0, :cols], c.consts["eps"])
    if c.params["BIAS"]:
        out = out + c["bias"][0]
    y[:] = y + out if c.params["ADD"] else out


def add_scaled(c: Call) -> None:
    x = c["x"][: c.n]
    if c.params["GATED"]:
        x = x / (1 + np.exp(-c["gate"][: c.n, :1]))
    c["y"][: c.n] += np.float32(c.consts["scale"]) * x


def soft_cap(c: Call) -> None:
    y = c["y"][: c.n] if c["y"].ndim > 1 else c["y"]
    y[:] = capped(y * np.float32(c.consts["scale"]), c.params["CAP"])


def activate(c: Call) -> None:
    cols, act = c.params["COLS"], c.params["ACTIVATION"]
    rows = c.n * c.grid[2]
    x = c["x"][:rows]
    y, up = x[:, :cols], x[:, cols : 2 * cols]
    if c.params.get("WEIGHTED"):
        y = y * c["factors"][: c.n].reshape(-1, 1)
    if act == "xielu":
        c["y"][:rows, :cols] = xielu(y, c.consts)
    else:
        c["y"][:rows, :cols] = gated(act, y, up, *limits_of(c.params)) if c.params["GATED"] else ACTIVATIONS[act](y)


def gate(c: Call) -> None:
    cols, first = c.params["COLS"], c.consts["first"]
    up = c["up"][: c.n, first : first + cols]
    span, x_first = c.params.get("SPAN", 1), c.consts["x_first"]
    gates = np.repeat(c["x"][: c.n, x_first : x_first + cols // span], span, axis=1)
    c["y"][: c.n, :cols] = gated(c.params["ACTIVATION"], gates, up)


def scale_by(c: Call) -> None:
    c["x"][: c.n] *= c["factor"][0, 0]


def patches(c: Call) -> None:
    side, places = c.params["PATCH"], c["places"].reshape(-1, 2)[: c.n].astype(np.int64)
    y, x, channel = np.mgrid[0:side, 0:side, 0:3].transpose(0, 3, 1, 2)  # (3, side, side) each
    at = places[:, :1, None, None] + y * places[:, 1:, None, None] + 3 * x + channel
    there = places[:, 1] > 0
    data = c["pixels"].view(np.uint8)[np.where(there[:, None, None, None], at, 0)]
    values = c["values"][channel, data].reshape(c.n, -1)
    c["y"][: c.n, : 3 * side * side] = np.where(there[:, None], values, np.float32(0))


def gather(c: Call) -> None:
    cols, first, tap0 = c.params["COLS"], c.consts["first"], c.consts["tap0"]
    table = c.buffers["w"] if "w" in c.buffers else c["w_qs"]
    y = c["y"][: c.n, first : first + cols]
    total = y if c.params["ADD"] else np.zeros_like(y)
    for tap in range(tap0, tap0 + c.params["TAPS"]):
        rows = c["taps"][: c.n, tap, 0].astype(np.int64) - c.consts["row0"]
        weights = np.ascontiguousarray(c["taps"][: c.n, tap, 1]).view(np.float32)
        present = (rows >= 0) & (rows < c.consts["rows"]) & (weights != 0)
        total[present] += weights[present, None] * table[rows[present]][:, :cols]
    y[:] = total


def nearest_code(c: Call) -> None:
    x, codes = c["x"][: c.n, : c.params["COLS"]], c["w"][np.arange(c.consts["codes"])]
    nearest = (2 * (x @ codes.T) - (codes * codes).sum(axis=1)).argmax(axis=1)
    x -= codes[nearest]
    c["taps"][: c.n, c.consts["tap"], 0] = nearest + c.consts["row0"]
    c["taps"][: c.n, c.consts["tap"], 1] = np.ones(1, np.float32).view(np.uint32)


def clamp(c: Call) -> None:
    cols, first = c.params["COLS"], c.consts["first"]
    y, limits = c["y"][: c.n, first : first + cols], c["limits"].reshape(-1)
    x = y if c.params["IN_PLACE"] else c["x"][: c.n, :cols]
    y[:] = np.minimum(np.maximum(x, limits[1]), limits[0])


def shift_scale(c: Call) -> None:
    factor, x = c["factor"][0], c["x"][: c.n]
    cols = len(factor)
    x[:, :cols] = (x[:, :cols] - c["shift"][0] if c.params["SHIFT"] else x[:, :cols]) * factor
    x[:, cols:] = 0


def softmax(c: Call) -> None:
    x = c["x"][: c.n, : c.params["COLS"]]
    e = np.exp(x - x.max(axis=1, keepdims=True))
    c["y"][: c.n, : x.shape[1]] = e / e.sum(axis=1, keepdims=True)


def column_norms(c: Call) -> None:
    cols = c.params["COLS"]
    c["y"].reshape(-1)[:cols] = np.sqrt((c["x"][: c.n, :cols] ** 2).sum(axis=0))


def grid_heads(c: Call) -> None:
    heads, dim, side, n = c.params["HEADS"], c.params["HEAD_DIM"], c.params["SIDE"], c.n
    x = c["x"][:n, : 3 * heads * dim].reshape(n, 3, heads, dim)
    cells, sides = c["cells"][:n].reshape(n, -1)[:, 0], c["cells"][:n].reshape(n, -1)[:, 1].astype(np.int64)
    found = np.zeros((3, n, heads, dim + 2 * side), np.float32)
    found[..., :dim] = x.transpose(1, 0, 2, 3)
    for axis, (at, name) in enumerate(((cells & 0xFFFF, "columns"), (cells >> 16, "lines"))):
        for j in range(side):
            inside = j < sides
            keys = c[name][np.where(inside, at.astype(np.int64) + sides - 1 - j, 0), :dim]
            products = (x[:, 0] * keys[:, None]).sum(axis=2) * c.consts["scale"]
            found[0, :, :, dim + axis * side + j] = np.where(inside[:, None], products, 0)
            found[1, :, :, dim + axis * side + j] = (inside & (at == j))[:, None]
    for name, values in zip(("y", "k", "v"), found, strict=True):
        c[name].reshape(len(c[name]), -1)[:n, : heads * (dim + 2 * side)] = values.reshape(n, -1)


def response_norm(c: Call) -> None:
    cols = c.params["COLS"]
    (factors, bias), lengths = c["terms"].reshape(2, cols), c["lengths"].reshape(-1)[:cols]
    scale = 1 + factors * lengths / max(lengths.mean(), c.consts["least"])
    c["y"][: c.n, :cols] = c["x"][: c.n, :cols] * scale + bias


def matmul_transposed(c: Call) -> None:
    rows = c.consts["rows"]
    c["y"][: c.n, : c.params["COLS"]] = c["x"][: c.n, :rows] @ c["w"][np.arange(rows)]


def pool(c: Call) -> None:
    if c.params["KIND"] == "spread":
        c["y"][: c.n] = 0
    for m, end, begin, row in c.segment_parts():
        x, y, before = c["x"][m:end], c["y"], int(c.positions[m] - c.prefixes[m, 0]) - begin
        match c.params["KIND"]:
            case "mean":
                total = x.sum(axis=0, dtype=np.float32) + (y[row] * np.float32(before) if before else np.float32(0))
                y[row] = total / np.float32(before + len(x))
            case "cls":
                y[row] = y[row] if before else x[0]
            case "last":
                y[row] = x[-1]
            case "spread":
                y[end - 1] = x.mean(axis=0, dtype=np.float32)


def pick_rows(c: Call) -> None:
    x, rows = c["x"], c.positions
    c["y"][: c.n] = np.where((rows < len(x))[:, None], x[np.minimum(rows, len(x) - 1)], np.float32(0))


def normalize(c: Call) -> None:
    y = c["y"][: c.n, : c.params["COLS"]]
    length = np.sqrt(np.sum(y * y, axis=1, keepdims=True, dtype=np.float32))
    y *= np.divide(np.float32(1), length, out=np.zeros_like(length), where=length > 0)


def read(c: Call) -> None:
    threads, loads = c.params["WG"], c.params["LOADS"]
    y = c["y"]
    words = np.zeros((len(y) // threads, loads, threads, 4), np.uint32)
    words.reshape(-1)[: c["x"].size] = c["x"].reshape(-1)
    y[:] = words.sum(axis=(1, 3), dtype=np.uint32).reshape(-1)


KERNELS: dict[str, Callable[[Call], None]] = {
    f.__name__: f
    for f in (
        embed, add_media, norm, add_scaled, soft_cap, activate, matmul, matvec, matvec_small_batch, quantize_rows,
        rope_append, norm_rope_append, kv_quantize, attention, attention_decode, attention_combine,
        attention_merge, pool, pick_rows,
        normalize, shortconv, shortconv_all, gate, scale_by, route, experts, group_experts, weighted_sum, sample_best,
        sample_shape, sample_draw, sample, advance, draft_rows, draft_states, logprobs, read, patches, gather, unfold,
        nearest_code, clamp, shift_scale, matmul_transposed, depthwise, subsample, relative_attention,
        relative_attention_all,
        softmax, column_norms, response_norm, grid_heads, ssm_conv,
        ssm_window, ssm_scan, gated_norm, head_products, head_products_transposed, latent_append, latent_expansion,
        add_low_rank, expert_low_rank, add_expert_low_rank, add_direction, altup_predict,
        altup_correct, laurel, copy_columns, sparse_gate,
        attend_streams, merge_streams, spread_streams, remix_streams, norm_streams, mix_streams,
        embed_ngrams, gate_ngrams, scale_queries,
        token_shift, wkv7_inputs, wkv_scan, wkv_output, mtp_input, store_hidden, map_logits, switch_adapters,
        index_append, index_scores, index_choose, index_join, index_join_raw, window_append, compress,
        compressed_attention,
    )
}  # fmt: skip
KERNELS |= {"matmul_matrix": matmul, "matmul_int8": matmul}
KERNELS |= {"attention_matrix": attention, "attention_decode_tiles": attention_decode}
KERNELS |= dict.fromkeys(("sample_histogram", "sample_sort", "sample_bounds", "logprobs_partitions"), nothing)
