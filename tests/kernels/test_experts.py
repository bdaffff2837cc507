"""Mixtures of experts: routing, tokens sorted by expert, and the experts' products. GPU against numpy."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import experts, matmul_tiles
from py_engine.plan.ops import Ops, pad
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.routing import Route, Routing, choose_experts
from py_engine.plan.shared_constants import SHORT_BATCH
from py_engine.plan.weights import ExpertMatrices
from py_engine.proof import comparison
from py_engine.proof.cases import cases
from tests.support.kernels.bench import Bench, Setup, bench_of
from tests.support.kernels.checks import EPS, check
from tests.support.kernels.proofs import run_case
from tests.support.kernels.quantised import matrix
from tests.support.kernels.variants import in_turn

Pages = Callable[[str], tuple[Page, dict[str, Any]]]
PLACES = ((7, 3), (30, 0), (8, 3), (0, 5), (9, 3))  # (position, sequence)


@dataclass(frozen=True)
class Shape:
    """A mixture of `n` experts. A token uses `used`."""

    n: int
    used: int
    cols: int
    n_ff: int
    type: Q = Q.F16
    stacked: bool = True  # gate and up in one matrix
    biased: bool = False
    normed: bool = False
    activation: str = "silu"
    weighs_inputs: bool = False


def _matrices(bench: Bench, shape: Shape, name: str, rows: int, cols: int, stack: int = 1) -> ExpertMatrices:
    count = stack * shape.n * rows
    if shape.type in (Q.F16, Q.F32):
        weight = bench.weight(name, shape.type, count, cols, 0.3)
    else:
        weight = matrix(bench, shape.type, name, count, cols, tame=True)
    for _, part in weight.split(bench.device.max_binding):
        _, first, n = part.sources[0]
        bench.raw[part.name] = bench.raw[name].reshape(count, -1)[first : first + n].reshape(-1)
        bench.plan.weights[part.name] = Weight(part.name, part.type, n, cols, ((part.name, 0, n),))
    return weight, bench.weight(f"{name}.bias", Q.F32, stack * shape.n, rows) if shape.biased else None


def _network(bench: Bench, shape: Shape) -> experts.ExpertNetwork:
    """Random matrices, as Weights.experts() makes them."""
    if shape.stacked:
        inputs = [_matrices(bench, shape, "gate_up", shape.n_ff, shape.cols, 2)]
    else:
        inputs = [_matrices(bench, shape, name, shape.n_ff, shape.cols) for name in ("gate", "up")]
    return experts.ExpertNetwork(
        inputs,
        _matrices(bench, shape, "down", shape.cols, shape.n_ff),
        shape.n_ff,
        shape.activation,
        True,
        bench.vector("norm", shape.cols) if shape.normed else None,
        EPS,
        shape.weighs_inputs,
    )


def _experts(bench: Bench, ops: Ops, shape: Shape, favourite: int | None = None) -> Buffer:
    """Route random logits, in which every token's first choice may be one expert; return x + the mixture's output."""
    x, y = ops.rows("x", shape.cols), ops.rows("y", shape.cols)
    logits = ops.rows("router", shape.n)
    for b in (x, y, logits):
        bench.fill(b)
    if favourite is not None:
        bench.data[logits.name][:, favourite] = 9
    route = choose_experts(ops, logits, Routing(shape.n, shape.used, True, 0.5))
    network = _network(bench, shape)
    experts.combine(ops, experts.hidden(ops, route, x, network), network.down, y)
    return y


@in_turn(
    "n, used, gating, normalised, biased",
    [
        (1, 1, "softmax", 1, 0),
        (5, 2, "softmax", 0, 1),
        (33, 4, "sigmoid", 1, 1),
        (128, 8, "softmax", 1, 0),
        (300, 8, "sigmoid", 0, 0),
        (30, 4, "sigmoid", 1, 1),
        (256, 8, "sigmoid", 1, 0),
        (34, 4, "softmax", 1, 0),
        (37, 6, "sqrt_softplus", 1, 1),
        (9, 3, "sqrt_softplus", 0, 0),
    ],
)
def test_route(bench: Bench, n: int, used: int, gating: str, normalised: int, biased: int) -> None:
    """The choice, with two equal logits, and the weights. From all experts, groups of ten or 32, or pairs.

    Where 8 are chosen, each expert's weights have a factor.
    """
    groups, groups_used = {30: (3, 2), 256: (8, 4)}.get(n, (0, 0))
    ops = bench.begin(Setup(batch=9, n=7))
    logits = ops.rows("router", n)
    values = bench.fill(logits)
    values[:, n:] = np.nan
    values[2, n // 2] = values[2, n - 1] = 8
    bias = bench.vector("bias", n) if biased else None
    factors = bench.vector("factors", n) if used == 8 else None
    routing = Routing(n, used, bool(normalised), 2.5, gating, bias, groups, groups_used, 1 + (n == 34), factors=factors)
    route = choose_experts(ops, logits, routing)
    gpu, host = bench.run(ops)
    assert (gpu[route.chosen.name][:7] == host[route.chosen.name][:7]).all()
    assert (gpu[route.chosen.name][7:] == 0xFFFFFFFF).all()
    check(bench, gpu[route.weights.name][:7], host[route.weights.name][:7], 1e-10)


@in_turn(
    "n, used, gating, setup",
    [
        (37, 8, "sqrt_softplus", Setup(batch=9, n=7, pos=5, seq=3, vocab=70)),
        (9, 1, "softmax", Setup(batch=1, n=1, pos=30, seq=1, vocab=7)),
        (300, 6, "sigmoid", Setup(batch=6, n=5, places=PLACES, vocab=40)),
        (33, 33, "sqrt_softplus", Setup(batch=6, n=5, places=PLACES, vocab=9)),
    ],
)
def test_experts_of_a_token(bench: Bench, n: int, used: int, gating: str, setup: Setup) -> None:
    """A table chooses them, with a token that it lacks, and a number that no expert has."""
    ops = bench.begin(setup)
    logits = ops.rows("router", n)
    bench.fill(logits)[0, : n // 2] = -30  # gates that are nearly zero
    rows, tokens = setup.vocab - 2, setup.n
    table = bench.weight("table", Q.F32, rows, used)
    choices = np.array([bench.random.permutation(n)[:used] for _ in range(rows)], np.uint32)
    choices[0, 0] = 0xFFFFFFFF
    bench.raw["table"] = choices.view(np.uint8).reshape(-1)
    places = setup.places or [(setup.pos + m, setup.seq) for m in range(tokens)]
    bench.data["tokens"][places[0][1], places[0][0]] = setup.vocab
    if tokens > 1:
        bench.data["tokens"][places[1][1], places[1][0]] = 0
    factors = bench.vector("factors", n) if used == 8 else None
    route = choose_experts(ops, logits, Routing(n, used, True, 2.5, gating, factors=factors, table=table))
    gpu, host = bench.run(ops)
    want = choices[[min(int(bench.data["tokens"][seq, pos]), rows - 1) for pos, seq in places]]
    np.testing.assert_array_equal(gpu[route.chosen.name][:tokens], np.minimum(want, n - 1))
    np.testing.assert_array_equal(host[route.chosen.name][:tokens], np.minimum(want, n - 1))
    assert (gpu[route.chosen.name][tokens:] == 0xFFFFFFFF).all()
    check(bench, gpu[route.weights.name][:tokens], host[route.weights.name][:tokens], 1e-10)


@pytest.mark.parametrize(("n", "used", "tokens"), [(1, 1, 1), (5, 2, 31), (128, 8, 33), (300, 8, 257), (4, 4, 3)])
def test_grouping(plain_bench: Bench, n: int, used: int, tokens: int) -> None:
    """Every pair is in one tile of its expert; tiles are as few as possible, the others are empty."""
    bench = plain_bench
    ops = bench.begin(Setup(batch=300, n=tokens))
    chosen = ops.buffer("chosen", (300, used), "u32")
    choices = [bench.random.permutation(n // 2 + 1 if n // 2 >= used else n)[:used] for _ in range(300)]
    bench.data["chosen"] = np.array(choices, np.uint32)
    route = Route(Routing(n, used, True), chosen, ops.buffer("weights", (300, used)))
    groups = experts.group(ops, route)
    gpu, host = bench.run(ops)
    assert (gpu[groups.tiles.name] == host[groups.tiles.name]).all()
    pairs = bench.data["chosen"].reshape(-1)
    slots = gpu[groups.slots.name]
    assert sorted(slots[: tokens * used].tolist()) == list(range(tokens * used))
    assert (np.diff(pairs[slots[: tokens * used]].astype(int)) >= 0).all()
    count = -(-tokens // groups.count.tile) + groups.count.extra
    assert (gpu[groups.tiles.name][count:] == 0).all()


@in_turn(
    "shape, limit, favourite, tokens",
    [  # variants take turns: rows with the same kernels are two apart, and are compiled once
        (Shape(5, 2, 33, 7), 1 << 27, None, 1),
        (Shape(5, 2, 33, 31, weighs_inputs=True), 1 << 27, None, 33),
        (Shape(5, 2, 33, 7), 1 << 27, None, 257),
        (Shape(5, 2, 33, 7, stacked=False, biased=True, activation="silu<0.5"), 1 << 27, 3, 31),
        (Shape(5, 2, 33, 7, stacked=False, biased=True), 2048, None, 33),
        (Shape(9, 3, 64, 96, Q.Q8_0, biased=True, normed=True, activation="swiglu_oai"), 1 << 27, 0, 3),
        (Shape(5, 2, 33, 7, stacked=False, biased=True), 2048, 4, 255),
        (Shape(9, 3, 64, 96, Q.Q8_0, biased=True, normed=True, activation="swiglu_oai"), 1 << 27, None, 257),
        (Shape(4, 2, 40, 12, activation="clamped_silu<0.5"), 1 << 27, 3, 31),
        (Shape(4, 2, 40, 12, activation="situ<0.5<0.7"), 1 << 27, 3, 31),
    ],
)
def test_many_tokens(bench: Bench, shape: Shape, limit: int, favourite: int | None, tokens: int) -> None:
    """Experts without tokens, one that all tokens use, and matrices split over several bindings."""
    bench = Bench(bench.page, replace(bench.device, max_binding=limit))
    ops = bench.begin(Setup(batch=260, n=tokens))
    y = _experts(bench, ops, shape, favourite)
    assert {"group_experts", "matmul"} <= {op.kernel for op in ops.ops}
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:tokens, : shape.cols], host[y.name][:tokens, : shape.cols])
    assert (gpu[y.name][tokens:] == bench.data[y.name][tokens:]).all()


@pytest.mark.parametrize("variant", ["lavapipe: f16", "lavapipe: f16 subgroups"])
def test_many_tokens_in_f16(variant: str, kernel_pages: Pages) -> None:
    bench = bench_of(variant, kernel_pages)
    ops = bench.begin(Setup(batch=70, n=67))
    y = _experts(bench, ops, Shape(4, 2, 96, 64, Q.Q4_0, biased=True))
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:67, :96], host[y.name][:67, :96])


@pytest.mark.parametrize(
    ("shape", "limit", "tokens"),
    [
        (Shape(5, 2, 96, 64, Q.Q4_0, biased=True), 1 << 27, 67),
        (Shape(9, 3, 64, 96, Q.Q8_0, stacked=False, activation="silu"), 2048, 255),
        (Shape(4, 2, 96, 64, Q.Q8_0, weighs_inputs=True), 1 << 27, 1),
    ],
)
def test_many_tokens_in_bytes(plain_bench: Bench, shape: Shape, limit: int, tokens: int) -> None:
    """Rounded rows of tokens, and of each token's experts; also in several parts."""
    bench = Bench(plain_bench.page, replace(plain_bench.device, dot8=True, max_binding=limit))
    ops = bench.begin(Setup(batch=260, n=tokens))
    y = _experts(bench, ops, shape)
    kernels = [op.kernel for op in ops.ops]
    assert "matmul_int8" in kernels
    assert "matmul" not in kernels
    assert kernels.count("quantize_rows") == 2  # before the hidden layer, and after it
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:tokens, : shape.cols], host[y.name][:tokens, : shape.cols], 1e-4)
    assert (gpu[y.name][tokens:] == bench.data[y.name][tokens:]).all()


STACKED = Shape(4, 2, 96, 64, Q.Q8_0, biased=True)
CLAMPED = Shape(4, 2, 40, 96, Q.F16, biased=True, activation="swiglu_oai")  # a tile's last rows are after the matrix's


@pytest.mark.parametrize(
    ("shape", "tokens", "tile"),
    [
        (STACKED, 1, {"TM": 32, "TN": 64, "SM": 1, "SN": 2}),
        (replace(STACKED, stacked=False), 130, {"TM": 32, "TN": 64, "SM": 1, "SN": 2}),
        (STACKED, 130, {"TM": 32, "TN": 64, "SM": 1, "SN": 2}),
        (replace(STACKED, biased=False), 33, {"TM": 64, "TN": 64, "SM": 2, "SN": 2}),
        (CLAMPED, 31, {"TM": 32, "TN": 128, "SM": 1, "SN": 2}),
        (STACKED, 130, {"TM": 64, "TN": 64, "SM": 2, "SN": 2, "AHEAD": 1}),
        (replace(STACKED, stacked=False), 47, {"TM": 32, "TN": 64, "SM": 2, "SN": 4}),
    ],
)
def test_many_tokens_with_matrices(
    plain_bench: Bench, shape: Shape, tokens: int, tile: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel with subgroup matrices, emulated."""
    bench = Bench(plain_bench.page, replace(plain_bench.device, subgroup=32, matrix=16))
    kernel, default = matmul_tiles.grouped_matmul(bench.device, 256, 2, 8, [])
    assert kernel == "matmul_matrix"
    monkeypatch.setattr(matmul_tiles, "grouped_matmul", lambda *_: (kernel, default | {"DEPTH": 32} | tile))
    ops = bench.begin(Setup(batch=256, n=tokens))
    y = _experts(bench, ops, shape, 1)
    stored = {"gated", "store"} if shape.stacked else {"store"}  # by the products
    assert {op.params["EPILOGUE"] for op in ops.ops if op.kernel == kernel} == stored
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:tokens, : shape.cols], host[y.name][:tokens, : shape.cols], 1e-10)


@pytest.mark.parametrize(
    ("shape", "epilogue"),
    [
        (STACKED, "gated"),
        (replace(CLAMPED, used=1), "gated"),
        (replace(STACKED, n=1, used=1), "gated"),
        (replace(CLAMPED, n_ff=42), "store"),  # a gated one would store two columns more of each row
    ],
)
def test_right_products_of_experts_pass_the_proof(
    plain_bench: Bench, shape: Shape, epilogue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(plain_bench.page, replace(plain_bench.device, subgroup=32, matrix=16))
    kernel, default = matmul_tiles.grouped_matmul(bench.device, 64, shape.used, shape.n, [])
    tile = {"TM": 32, "TN": 64, "DEPTH": 32, "SM": 1, "SN": 2}
    monkeypatch.setattr(matmul_tiles, "grouped_matmul", lambda *_: (kernel, default | tile))
    ops = bench.begin(Setup(batch=64, n=1))
    _experts(bench, ops, shape, 0)
    bench.plan.lists["experts"] = ops.ops
    made = [*cases(bench.plan, bench.device, ["experts"], lambda _: False)]
    products = [case for case in made if case.ops[0].kernel == kernel]
    assert {case.ops[0].params["EPILOGUE"] for case in products} == {epilogue, "store"}
    for case in products:
        assert comparison.fault(case, run_case(bench.page, case, bench.device)) is None, case.shaders[0].label


@in_turn(
    "shape, limit, places",
    [
        (Shape(5, 2, 33, 7), 1 << 27, ()),
        (Shape(5, 2, 33, 7), 1 << 27, PLACES),
        (Shape(5, 3, 33, 31, weighs_inputs=True), 1 << 27, PLACES),
        (Shape(5, 2, 33, 7, stacked=False, biased=True, normed=True), 1 << 27, ()),
        (Shape(5, 2, 33, 7, stacked=False, normed=True), 2048, ()),
        (Shape(5, 2, 33, 7, stacked=False, normed=True, activation="silu<0.5"), 2048, PLACES),
        (Shape(4, 2, 40, 12, normed=True, activation="clamped_silu<0.5"), 1 << 27, PLACES),
        (Shape(4, 2, 40, 12, normed=True, activation="situ<0.5<0.7"), 1 << 27, PLACES),
        (Shape(9, 3, 64, 96, Q.Q8_0, biased=True, normed=True, activation="swiglu_oai"), 1 << 27, PLACES),
    ],
)
def test_small_batch(bench: Bench, shape: Shape, limit: int, places: tuple[tuple[int, int], ...]) -> None:
    """One token, or several with a State each. Split matrices are multiplied as those of many tokens."""
    bench = Bench(bench.page, replace(bench.device, max_binding=limit))
    n = max(1, len(places))
    ops = bench.begin(Setup(batch=SHORT_BATCH if places else 1, n=n, places=places))
    y = _experts(bench, ops, shape)
    assert any(op.kernel == "experts" for op in ops.ops) == (limit > 2048)
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, : shape.cols], host[y.name][:n, : shape.cols])
    assert (gpu[y.name][n:] == bench.data[y.name][n:]).all()


@in_turn("type, places", [(Q.Q8_0, ()), (Q.Q4_K, PLACES), (Q.Q6_K, PLACES), (Q.MXFP4, ())])
def test_small_batch_of_bytes(bench: Bench, type: Q, places: tuple[tuple[int, int], ...]) -> None:
    """Integer dot products. Values between two steps may round either way."""
    bench = Bench(bench.page, replace(bench.device, dot8=True, max_workgroup_storage=32768))
    n = max(1, len(places))
    ops = bench.begin(Setup(batch=SHORT_BATCH if places else 1, n=n, places=places))
    shape = Shape(6, 3, 512, 256, type, biased=True, normed=True)
    y = _experts(bench, ops, shape)
    assert {op.params["DOT8"] for op in ops.ops if op.kernel == "experts"} == {1}
    gpu, host = bench.run(ops)
    assert pad(shape.cols) == shape.cols
    check(bench, gpu[y.name][:n], host[y.name][:n], 1e-4)


@in_turn("type", [Q.Q8_0, Q.Q4_K, Q.MXFP4])
def test_a_token_gets_what_it_gets_alone(bench: Bench, type: Q) -> None:
    """Bit by bit: alone, each workgroup rounds x; of several tokens, a dispatch does before."""
    bench = Bench(bench.page, replace(bench.device, dot8=True, max_workgroup_storage=32768, max_storage_buffers=10))
    shape = Shape(6, 3, 512, 256, type, biased=True, normed=True)
    batch = _of_tokens(bench, shape, np.arange(len(PLACES)))
    for m in (0, 3):
        alone = _of_tokens(bench, shape, np.array([m]))
        assert (batch[m].view(np.uint32) == alone[0].view(np.uint32)).all(), m


def _of_tokens(bench: Bench, shape: Shape, tokens: np.ndarray) -> np.ndarray:
    """What a mixture adds to some tokens of a batch."""
    places, several = tuple(PLACES[m] for m in tokens), len(tokens) > 1
    setup = Setup(SHORT_BATCH if several else 1, n=len(places), pos=places[0][0], places=places if several else ())
    ops = bench.begin(setup)
    bench.random = np.random.default_rng(1)  # the same numbers for any batch
    x, y, logits = ops.rows("x", shape.cols), ops.rows("y", shape.cols), ops.rows("router", shape.n)
    for b in (x, y, logits):
        values = bench.random.standard_normal((len(PLACES), b.shape[1])).astype(np.float32)
        bench.data[b.name] = np.resize(values[tokens], b.shape)
    route = choose_experts(ops, logits, Routing(shape.n, shape.used, True, 0.5))
    network = _network(bench, shape)
    experts.combine(ops, experts.hidden(ops, route, x, network), network.down, y)
    products = [op for op in ops.ops if op.kernel == "experts"]
    assert [op.params.get("ROUNDED_BEFORE", 0) for op in products] == [int(several)] * 2
    gpu, _ = bench.run(ops)
    return gpu[y.name][: len(tokens), : shape.cols]
