"""Each kernel in variants, with awkward shapes: GPU against numpy.

Outputs start as NaN. NaN remains where a kernel does not write, and spreads where it reads too early.
"""

from dataclasses import replace

import numpy as np
import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import kernels, per_layer
from py_engine.plan.diffusion import pick_rows
from py_engine.plan.ops import Projection, pad
from py_engine.plan.plan import Weight
from py_engine.plan.shared_constants import BANNED
from py_engine.tuning.read_rate import stream
from tests.support.kernels.bench import Bench, Setup, dispatch, planes
from tests.support.kernels.checks import EPS, PLAIN, QUANTISED, check, cols_of
from tests.support.kernels.variants import in_every_variant, in_pairs

SOME = [*PLAIN, Q.Q4_0]  # test_quants.py has the other types


@in_pairs(("type", SOME), ("rows, cols", [(1, 1), (33, 33), (7, 1056)]))
def test_embed(bench: Bench, type: Q, rows: int, cols: int) -> None:
    cols = cols_of(type, cols)
    ops = bench.begin(Setup(batch=3, n=3, pos=5, vocab=rows))
    x = ops.embed(bench.weight("table", type, rows, cols))
    gpu, host = bench.run(ops)
    check(bench, gpu[x.name][:, :cols], host[x.name][:, :cols], 1e-14)


@in_pairs(("n, cols", [(1, 1), (3, 31), (5, 255), (31, 257), (1, 2048)]), ("more", [0, 40]))
def test_rms_norm(bench: Bench, n: int, cols: int, more: int) -> None:
    """Of a row's first columns, where it has more."""
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x = ops.rows("x", cols + more)
    bench.fill(x)
    y = ops.rms_norm("y", x, bench.vector("norm", cols), EPS)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, :cols], host[y.name][:n, :cols], 1e-10)
    assert np.isnan(gpu[y.name][n:]).all()


@in_pairs(("cols", [31, 257, 2048]))
def test_pick_rows(bench: Bench, cols: int) -> None:
    """Rows at the positions of a small batch, in any order, and past the end; the row at the position of one token."""
    for places, batch in ([(4, 0), (0, 2), (6, 0), (9, 1)], 8), ([(5, 0)], 1):
        ops = bench.begin(Setup(batch, len(places), pos=5, places=places if batch > 1 else ()))
        x = ops.buffer("hidden", (7, pad(cols)))
        bench.fill(x)
        y = pick_rows(ops, x)
        gpu, host = bench.run(ops)
        count = len(places)
        np.testing.assert_array_equal(gpu[y.name][:count], host[y.name][:count])
        for row, (position, _) in zip(gpu[y.name], places, strict=False):
            np.testing.assert_array_equal(row, gpu[x.name][position] if position < 7 else 0)
        assert np.isnan(gpu[y.name][count:]).all()


@in_pairs(("n, cols", [(3, 31), (2, 288)]))
def test_layer_norm(bench: Bench, n: int, cols: int) -> None:
    """A layer norm of every row of x, for a list of any batch size; an RMS norm that is added to y."""
    ops = bench.begin(Setup(batch=1, n=n))
    x = ops.buffer("other.x", (n, pad(cols)))
    bench.fill(x)[:] += 2
    y = ops.layer_norm("y", x, bench.vector("norm", cols), bench.vector("bias", cols), EPS)
    total = ops.buffer("total", (n, pad(cols)))
    bench.fill(total)
    ops.add_norm(x, bench.vector("other", cols), total, EPS)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:, :cols], host[y.name][:, :cols], 1e-10)
    check(bench, gpu[total.name][:, :cols], host[total.name][:, :cols], 1e-10)


@in_every_variant
def test_scales(bench: Bench) -> None:
    """Scaled embeddings, added position embeddings, a scaled sum, soft caps of one and of several rows of logits."""
    ops = bench.begin(Setup(batch=3, n=2, pos=5, vocab=9))
    x = ops.embed(bench.weight("table", Q.F16, 9, 33), 6.5)
    ops.embed(bench.weight("positions", Q.F32, 9, 33), row="position")
    ops.embed(bench.weight("types", Q.F16, 2, 33), row="first")
    y = ops.rows("y", 33)
    bench.fill(y)
    ops.add_scaled(x, 0.25, y)
    gate = ops.rows("gate", 1)
    bench.fill(gate)
    ops.add_scaled(x, 0.5, y, gate)
    capped = [ops.buffer("logits", (300,)), ops.rows("logits", 300)]
    for logits, cap in zip(capped, (3.0, 0.0), strict=True):
        bench.fill(logits)[:] *= 100
        ops.soft_cap(logits, 0.5, cap)
    gpu, host = bench.run(ops)
    for b in (x, y):
        check(bench, gpu[b.name][:2, :33], host[b.name][:2, :33], 1e-10)
    check(bench, gpu["logits"], host["logits"], 1e-10)
    check(bench, gpu[capped[1].name], host[capped[1].name], 1e-10)


@in_every_variant
def test_banned_tokens(bench: Bench) -> None:
    """Columns of one and of two rows of logits; the others, and a row without a token, stay."""
    ops = bench.begin(Setup(batch=3, n=2, pos=5, vocab=300))
    given = [ops.buffer("logits", (300,)), ops.rows("logits", 300)]
    wanted = [bench.fill(logits).copy() for logits in given]
    wanted[0][4:274] = wanted[1][:2, 4:274] = BANNED
    bench.data["banned"] = np.full((1, pad(2)), BANNED, np.float32)
    for logits in given:
        ops.ban(logits, 4, 270)
    for results in bench.run(ops):
        for logits, rows in zip(given, wanted, strict=True):
            np.testing.assert_array_equal(results[logits.name].reshape(rows.shape), rows)


@in_pairs(
    ("type", SOME),
    ("rows, cols, bias", [(1, 1, False), (31, 33, True), (257, 255, False), (100, 1056, False)]),
)
def test_matvec(bench: Bench, type: Q, rows: int, cols: int, bias: bool) -> None:
    """Products that are added, also times a factor, and activated ones."""
    cols = cols_of(type, cols)
    ops = bench.begin(Setup(batch=1, n=1))
    x, y, z = ops.rows("x", cols), ops.rows("y", rows), ops.rows("z", rows)
    for b in (x, y, z):
        bench.fill(b)
    weight, added = bench.weight("w", type, rows, cols), bench.vector("bias", rows) if bias else None
    ops.linear(x, weight, added, y)
    ops.linear(x, weight, added, z, 0.22)
    hidden = ops.activated(x, Projection([weight], added, bench.vector("norm", cols), EPS), "relu2")
    assert [op.kernel for op in ops.ops] == ["matvec"] * 3
    gpu, host = bench.run(ops)
    for b in (y, z, hidden):
        check(bench, gpu[b.name][:, :rows], host[b.name][:, :rows])


@in_pairs(("type", QUANTISED), ("rows, cols", [(3, 32), (257, 288), (31, 2080)]), ("norm", [False, True]))
def test_matvec_with_activations_in_bytes(bench: Bench, type: Q, rows: int, cols: int, norm: bool) -> None:
    """Activations rounded as in llama.cpp. Values between two steps may round either way."""
    bytes_ = Bench(bench.page, replace(bench.device, dot8=True))
    ops = bytes_.begin(Setup(batch=1, n=1))
    x, y = ops.rows("x", cols), ops.rows("hidden", rows)
    bytes_.fill(x)
    if norm:
        y = ops.gated(x, Projection([bytes_.weight("w", type, 2 * rows, cols)], None, bytes_.vector("norm", cols), EPS))
    else:
        bytes_.fill(y)
        ops.linear(x, bytes_.weight("w", type, rows, cols), bytes_.vector("bias", rows), y)
    assert ops.ops[-1].params["DOT8"] == 1
    gpu, host = bytes_.run(ops)
    check(bytes_, gpu[y.name][:, :rows], host[y.name][:, :rows], 1e-6)


@in_pairs(("rows, cols, n", [(257, 33, 1), (31, 255, 3), (1025, 64, 2)]))
def test_head(bench: Bench, rows: int, cols: int, n: int) -> None:
    """Norm and logits of the batch's last row."""
    ops = bench.begin(Setup(batch=1, n=n))
    x = ops.buffer("other.x", (4, pad(cols)))
    bench.fill(x)
    logits = ops.head(x, Projection([bench.weight("w", Q.F16, rows, cols)], None, bench.vector("norm", cols), EPS))
    gpu, host = bench.run(ops)
    check(bench, gpu[logits.name], host[logits.name])


@in_pairs(("type", SOME), ("n_ff, cols, batch", [(1, 1, 1), (31, 33, 5), (129, 288, 1)]))
def test_gated(bench: Bench, type: Q, n_ff: int, cols: int, batch: int) -> None:
    """The fused gated mat-vec of one token; norm, mat-mul and SiLU of several tokens."""
    cols = cols_of(type, cols)
    ops = bench.begin(Setup(batch=batch, n=min(batch, 3)))
    x = ops.rows("x", cols)
    bench.fill(x)
    y = ops.gated(
        x,
        Projection(
            [bench.weight("w", type, 2 * n_ff, cols)], bench.vector("b", 2 * n_ff), bench.vector("norm", cols), EPS
        ),
    )
    gpu, host = bench.run(ops)
    n = min(batch, 3)
    check(bench, gpu[y.name][:n, :n_ff], host[y.name][:n, :n_ff])


@in_pairs(("batch", [1, 3]))
def test_gelu(bench: Bench, batch: int) -> None:
    """GELU, gated and plain, with and without a norm of x."""
    ops = bench.begin(Setup(batch=batch, n=batch))
    x = ops.rows("x", 64)
    bench.fill(x)
    norm, both, bias = bench.vector("norm", 64), bench.weight("both", Q.F16, 64, 64, 0.1), bench.vector("b", 64)
    out = ops.rows("out", 64)
    bench.fill(out)
    down, up = bench.weight("down", Q.F16, 64, 32, 0.1), bench.weight("up", Q.F16, 31, 64, 0.1)
    ops.linear(ops.gated(x, Projection([both], bias, norm, EPS), "gelu"), down, None, out)
    ops.linear(ops.gated(out, Projection([both], bias), "gelu"), down, None, x)
    y = ops.activated(x, Projection([up], bench.vector("c", 31), norm, EPS), "gelu" if batch > 1 else "tanh")
    gpu, host = bench.run(ops)
    check(bench, gpu[out.name][:, :64], host[out.name][:, :64])
    check(bench, gpu[y.name][:, :31], host[y.name][:, :31])


@in_pairs(("type", SOME), ("rows, cols, n", [(1, 1, 3), (65, 33, 31), (70, 257, 33)]))  # a single value may cancel
def test_matmul(bench: Bench, type: Q, rows: int, cols: int, n: int) -> None:
    cols = cols_of(type, cols)
    ops = bench.begin(Setup(batch=n + 1, n=n))
    x, y = ops.rows("x", cols), ops.rows("y", rows)
    bench.fill(x)
    bench.fill(y)
    ops.linear(x, bench.weight("w", type, rows, cols), bench.vector("bias", rows), y)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, :rows], host[y.name][:n, :rows])


@in_pairs(("batch", [1, 3]))
def test_split_by_rows(bench: Bench, batch: int) -> None:
    """A matrix over the binding limit runs in parts, each with its part of the bias and its rows of y."""
    small = Bench(bench.page, bench.device.__class__(**{**bench.device.__dict__, "max_binding": 2048}))
    ops = small.begin(Setup(batch=batch, n=batch, vocab=40))
    table_ = small.weight("w", Q.F32, 40, 64)
    parts = table_.split(2048)
    assert len(parts) > 4
    for _, part in parts:  # the parts' bytes, as the loader would upload them
        _, first, rows = part.sources[0]
        small.raw[part.name] = small.raw["w"].reshape(40, -1)[first : first + rows].reshape(-1)
        small.plan.weights[part.name] = Weight(part.name, part.type, rows, 64, ((part.name, 0, rows),))
    x = ops.embed(table_)
    y = ops.rows("y", 40)
    small.fill(y)
    ops.linear(x, table_, small.vector("bias", 40), y)
    gpu, host = small.run(ops)
    check(small, gpu[y.name][:, :40], host[y.name][:, :40])


@in_every_variant
def test_inputs_of_layers(bench: Bench) -> None:
    """A norm per part of a row, gates on one of the parts and on spans of it, and a row times a scalar weight."""
    ops = bench.begin(Setup(batch=3, n=2))
    x, opened = ops.rows("x", 5 * 32), ops.rows("opened", 32)
    for b in (x, opened):
        bench.fill(b)
    extra = per_layer.group_norm(ops, x, bench.vector("norm", 32), 5, EPS)
    y = per_layer.gate(ops, per_layer.Gates(opened, "gelu"), extra, 64, 32)
    spans = per_layer.gate(ops, per_layer.Gates(opened, "sigmoid", first=2, span=3), extra, 32, 33)
    per_layer.scale_by(ops, opened, bench.vector("factor", 1))
    gpu, host = bench.run(ops)
    for b in (extra, y, opened):
        check(bench, gpu[b.name][:2], host[b.name][:2], 1e-10)
    check(bench, gpu[spans.name][:2, :33], host[spans.name][:2, :33], 1e-10)
    assert np.isnan(gpu[y.name][2]).all()


@in_pairs(("type", PLAIN), ("rows, cols", [(1, 1), (3, 31), (5, 33), (2, 255)]))
def test_repack_pad(bench: Bench, type: Q, rows: int, cols: int) -> None:
    elem = 4 if type == Q.F32 else 2
    random = np.random.default_rng(cols)
    raw = random.integers(0, 256, 4 + rows * cols * elem + 32, dtype=np.uint8)
    shader = kernels.expand("repack_pad", {"ELEM": elem, "COLS": cols}, bench.device)
    weight = Weight("w", type, rows, cols, ())
    empty = np.zeros(weight.plane_bytes("w_qs"), np.uint8)
    threads = weight.plane_bytes("w_qs") // 4
    out = dispatch(
        bench.page,
        shader,
        {"raw": raw, "w_qs": empty},
        {"src": 4, "dst": 0, "n": rows, "stride": 64},
        [1, -(-threads // 64)],
    )
    assert (out["w_qs"] == planes(weight, raw[4 : 4 + rows * cols * elem])["w_qs"]).all()


@pytest.mark.parametrize(("size", "loads"), [(4096, 4), (16 * 5000, 16), (1 << 20, 1)])
def test_read_adds_every_word_once(plain_bench: Bench, size: int, loads: int) -> None:
    ops = plain_bench.begin(Setup(batch=1, n=1))
    plain_bench.data["stream"] = plain_bench.random.integers(0, 1 << 32, (size // 16, 4), np.uint32)
    y = stream(ops, size, loads)
    gpu, host = plain_bench.run(ops)
    assert (gpu[y.name] == host[y.name]).all()
    assert int(gpu[y.name].sum(dtype=np.uint32)) == int(plain_bench.data["stream"].sum(dtype=np.uint32))
