"""What adapters add to products with experts' matrices: GPU against numpy, and bit by bit alone and in batches."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from py_engine.errors import WispError
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import expert_low_rank, experts
from py_engine.plan.adapters import NO_ADAPTERS
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.routing import Routing, choose_experts
from py_engine.plan.shared_constants import SHORT_BATCH
from tests.support.kernels.adapters import FIRST, PLACES, SCALES, begin, gather_sources, pair
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import EPS, check
from tests.support.kernels.variants import VARIANTS, in_turn

COUNT, USED = 5, 2  # experts, and those of a token


@dataclass(frozen=True)
class Mixture:
    """Its widths, the parts that adapters change, their ranks and types, and how it differs from most."""

    cols: int = 70
    n_ff: int = 36
    parts: tuple[str, ...] = ("gate", "up", "down")
    ranks: tuple[int, int] = (5, 5)  # of adapters 0 and 1
    types: tuple[Q, Q] = (Q.F16, Q.F16)  # of A and of B
    normed: bool = False
    factored: bool = False  # experts' outputs have factors
    merged: bool = False  # gate and up are one tensor
    gated: bool = True


def _mixture(bench: Bench, ops: Ops, mixture: Mixture) -> Buffer:
    """x + the output of a mixture of random experts, which adapters change."""
    cols, n_ff = mixture.cols, mixture.n_ff
    bench.random = np.random.default_rng(1)  # the same matrices for any batch
    names = ("gate", "up") if mixture.gated else ("up",)
    for name, rows, width in (*((name, n_ff, cols) for name in names), ("down", cols, n_ff)):
        bench.weight(name, Q.F16, COUNT * rows, width, 0.3)
        bench.raw[name] = bench.raw[name].reshape(COUNT * rows, -1)
        for adapter, rank in enumerate(mixture.ranks):
            if name in mixture.parts and not mixture.merged:
                pair(bench, adapter, name, rows, width, rank, mixture.types, (COUNT,))
    stack = tuple((name, 0, COUNT * n_ff) for name in names)
    if mixture.merged:
        bench.raw["gate_up"] = np.concatenate([bench.raw["gate"], bench.raw["up"]])
        stack = tuple(("gate_up", 2 * i * n_ff + part * n_ff, n_ff) for part in (0, 1) for i in range(COUNT))
        pair(bench, 1, "gate_up", 2 * n_ff, cols, mixture.ranks[1], mixture.types, (COUNT,))
    inputs = Weight("+".join(names), Q.F16, len(names) * COUNT * n_ff, cols, stack)
    down = bench.plan.weights["down"]
    bench.plan.weights = {w.name: w for w in (inputs, down)}
    factors = bench.vector("factors", COUNT) if mixture.factored else None
    norm = bench.vector("norm", cols) if mixture.normed else None
    x, y, logits = ops.rows("x", cols), ops.rows("y", cols), ops.rows("router", COUNT)
    for b in (x, y, logits):
        bench.fill(b)
    bench.data[x.name] *= np.float32(0.1)  # hidden layers of f16 end at 65,504
    route = choose_experts(ops, logits, Routing(COUNT, USED, True, 0.5, factors=factors))
    network = experts.ExpertNetwork(
        [(inputs, None)], (down, None), n_ff, "silu" if mixture.gated else "relu2", mixture.gated, norm, EPS
    )
    experts.combine(ops, experts.hidden(ops, route, x, network), network.down, y)
    gather_sources(bench)
    return y


@in_turn(
    "mixture, batch, places",
    [
        (Mixture(normed=True), 1, ()),
        (Mixture(normed=True, factored=True), SHORT_BATCH, PLACES),
        (Mixture(normed=True), 40, ()),
        (Mixture(ranks=(3, 40), factored=True), SHORT_BATCH, PLACES),
        (Mixture(ranks=(32, 64), types=(Q.F32, Q.Q8_0), cols=96, n_ff=64), 40, ()),
        (Mixture(merged=True), SHORT_BATCH, PLACES),
        (Mixture(merged=True, normed=True), 40, ()),
        (Mixture(gated=False, normed=True), SHORT_BATCH, PLACES),
        (Mixture(parts=("up",), normed=True), SHORT_BATCH, PLACES),
        (Mixture(parts=("down",), normed=True), SHORT_BATCH, PLACES),
    ],
    VARIANTS[1:],
)
def test_mixtures(bench: Bench, mixture: Mixture, batch: int, places: tuple[tuple[int, int], ...]) -> None:
    """One token, several sequences with scales of their own, and a prompt of a sequence with an adapter."""
    n = len(places) or (1 if batch == 1 else 37)
    ops = begin(bench, Setup(batch=batch, n=n, pos=5, seq=3 if batch == 40 else 0, places=places))
    y = _mixture(bench, ops, mixture)
    assert {"expert_low_rank", "add_expert_low_rank"} <= {op.kernel for op in ops.ops}
    gpu, host = bench.run(ops)
    check(bench, gpu[y.name][:n, : mixture.cols], host[y.name][:n, : mixture.cols])
    (name, *_) = (name for name in gpu if "expert_lora" in name)
    written = np.isfinite(host[name])
    check(bench, gpu[name][written], host[name][written])
    assert (gpu[y.name][n:] == bench.data[y.name][n:]).all()
    ops.ops = [op for op in ops.ops if op.kernel != "add_expert_low_rank"]
    without = bench.host(ops)[y.name][:n, : mixture.cols]
    adapters = {1} if mixture.merged else {0, 1}
    tokens = places or [(5 + i, 3 if batch == 40 else 0) for i in range(n)]
    firsts = {0: 0, 1: FIRST}
    changed = np.array([any(SCALES[s][a] and pos >= firsts[a] for a in adapters) for pos, s in tokens])
    differs = np.abs(host[y.name][:n, : mixture.cols] - without).max(axis=1) > 1e-3
    assert (differs == changed).all()


@in_turn("token", [0, 4])
def test_tokens_of_a_batch_get_what_they_get_alone(bench: Bench, token: int) -> None:
    """Bit by bit: a token with adapters from a list of one token; one without them from a list without any."""
    batch = begin(bench, Setup(batch=SHORT_BATCH, n=len(PLACES), places=PLACES))
    y = _mixture(bench, batch, Mixture(normed=True))
    gpu, _ = bench.run(batch)
    inputs = {name: bench.data[f"test.{name}"][token] for name in ("x", "y", "router")}
    position, seq = PLACES[token]
    alone = begin(bench, Setup(batch=1, n=1, pos=position, seq=seq))
    alone.adapters = bench.plan.adapters if any(SCALES[seq]) else NO_ADAPTERS
    want = _mixture(bench, alone, Mixture(normed=True))
    for name, values in inputs.items():
        bench.data[f"test.{name}"][0] = values
    single, _ = bench.run(alone)
    assert (gpu[y.name][token].view(np.uint32) == single[want.name][0].view(np.uint32)).all()


def test_equal_adapters_share_dispatches(plain_bench: Bench) -> None:
    """Gate's and up's, too. Other ranks have their own, and so has what a binding or a workgroup cannot hold."""

    def dispatches(mixture: Mixture, max_binding: int = 1 << 27) -> int:
        bench = Bench(plain_bench.page, replace(plain_bench.device, max_binding=max_binding))
        ops = begin(bench, Setup(batch=1, n=1))
        _mixture(bench, ops, mixture)
        return sum(op.kernel == "add_expert_low_rank" for op in ops.ops)

    assert dispatches(Mixture()) == 2
    assert dispatches(Mixture(ranks=(5, 6))) == 4
    assert dispatches(Mixture(ranks=(800, 800))) == 3  # three parts of four, one, and two for down
    assert dispatches(Mixture(ranks=(64, 64)), 1 << 16) == 6
    with pytest.raises(WispError, match=r"lora\[0\]: This device cannot bind the adapter's matrices for gate"):
        dispatches(Mixture(ranks=(64, 64)), 1 << 14)
    assert expert_low_rank.MOST_GROUPS == 96
