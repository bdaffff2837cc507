"""RWKV's time mixes, which take the place of attention."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

from py_engine.plan import latent_attention
from py_engine.plan.latent_attention import HeadMatrices
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.states import StateShape
from py_engine.plan.weights import Weights
from py_engine.plan.wkv import Output, Rule, Window, WkvColumns, token_shift, wkv7_inputs, wkv_output, wkv_scan

MIXES = 5  # of RWKV-6: for decay, key, value, receptance and gate


@dataclass(frozen=True)
class TimeMix(ABC):
    """A layer's time mix. `groups`: heads of keys and values. `b`: the prefix of its tensors' names."""

    shape: StateShape
    groups: int
    w: Weights
    ops: Ops
    b: str

    @abstractmethod
    def mixed(self, x: Buffer, window: Window, *, first: bool) -> Buffer:
        """The input of the output matrix, (n, n_embd), for the normed x. `first`: of the model's layers."""

    @property
    def width(self) -> int:
        """n_embd."""
        return self.shape.channels

    def matrix(self, part: str, rows: int, cols: int) -> Projection:
        """The projection with one of the time mix's matrices."""
        return Projection([self.w.matrix(f"{self.b}time_mix_{part}.weight", rows, cols)])

    def low_rank(self, part: str, x: Buffer, activation: str = "") -> tuple[Buffer, Projection]:
        """The small product of x, and the projection of it back to the width."""
        rank = self.w.rows(f"{self.b}time_mix_{part}1.weight")
        down, up = self.matrix(part + "1", rank, self.width), self.matrix(part + "2", self.width, rank)
        if activation:
            return self.ops.activated(x, down, activation), up
        return self.ops.normed_stack(f"low_{part}", x, down), up

    def vector(self, *parts: str, size: int = 1) -> Weight:
        """Vectors of the time mix, of `size` rows, one after the other."""
        return self.w.vector(*((f"{self.b}time_mix_{part}.weight", size * self.width) for part in parts))


class TimeMix7(TimeMix):
    """RWKV-7's: a state changes by a delta rule with its own decays and rates of learning."""

    def mixed(self, x: Buffer, window: Window, *, first: bool) -> Buffer:
        """The input of the output matrix."""
        w, ops, b, n = self.w, self.ops, self.b, self.width
        gated = b + "time_mix_g1.weight" in w
        parts = 6 if gated else 5
        mixes = token_shift(ops, x, self.vector("lerp_fused", size=parts), parts, window)
        xr, xw, xk, xv, xa = mixes[:5]
        inputs = [self.low_rank("w", xw, "tanh"), self.low_rank("a", xa)]
        biases = ["w0", "a0"]
        if not first:  # how much of the first layer's values is added
            inputs.append(self.low_rank("v", xv))
            biases.append("v0")
        at = n * len(inputs)
        for name, h in (("receptance", xr), ("key", xk), ("value", xv)):
            inputs.append((h, self.matrix(name, n, n)))
        rows = ops.side_by_side("wkv_inputs", inputs, self.vector(*biases), 6 * n)
        columns = WkvColumns(rows, 0, at, at + n, at + 2 * n, n, 5 * n if first else 2 * n)
        first_values = ops.rows("first_values", n)
        wkv7_inputs(ops, columns, self.vector("k_k", "k_a"), self.shape, first_values, first=first)
        y = wkv_scan(ops, Rule("wkv7", self.groups), columns, self.shape, window.states)
        gate = ops.normed_stack("gates", *self.low_rank("g", mixes[5], "sigmoid")) if gated else None
        norm = b + "time_mix_ln.weight" in w
        own = [b + f"time_mix_{name}" for name in (("ln.weight", "ln.bias") if norm else ())]
        factors = w.vector(*((name, n) for name in (*own, b + "time_mix_r_k.weight")))
        return wkv_output(ops, y, columns, Output(factors, norm, True, gate), self.shape)


class TimeMix6(TimeMix):
    """RWKV-6's: mixtures and decays depend on the token. Without a bonus of a token's own value, it is Qwen 2's."""

    def mixed(self, x: Buffer, window: Window, *, first: bool) -> Buffer:
        """The input of the output matrix."""
        w, ops, b, n = self.w, self.ops, self.b, self.width
        xw, xk, xv, xr, xg = self._mixes(x, window)
        keys, name = self.groups * self.shape.cols, b + "time_mix_"
        own = [("receptance", xr, n), ("key", xk, keys), ("value", xv, keys)]
        inputs = [self.low_rank("decay_w", xw, "tanh"), *((h, self.matrix(part, rows, n)) for part, h, rows in own)]
        biases = [(f"{name}{part}.bias", rows) for part, _, rows in own]
        if not any(bias in w for bias, _ in biases):
            biases = []
        rows = ops.side_by_side("wkv_inputs", inputs, w.vector((name + "decay.weight", n), optional=biases))
        columns = WkvColumns(rows, 0, n, 2 * n, 2 * n + keys)
        bonus = self.vector("first") if name + "first.weight" in w else None
        rule = Rule("wkv6" if bonus else "gla", self.groups, bonus)
        y = wkv_scan(ops, rule, columns, self.shape, window.states)
        gate = ops.normed_stack("gates", xg, self.matrix("gate", n, n))
        norm = w.vector((name + "ln.weight", n), (name + "ln.bias", n)) if name + "ln.weight" in w else None
        how = Output(norm, norm is not None, False, gate, "silu" if bonus else "sigmoid")
        return wkv_output(ops, y, columns, how, self.shape)

    def _mixes(self, x: Buffer, window: Window) -> list[Buffer]:
        """The inputs of decay, key, value, receptance and gate."""
        ops, n = self.ops, self.width
        (mix,) = token_shift(ops, x, self.vector("lerp_x"), 1, replace(window, writes=False))
        rank = self.w.rows(f"{self.b}time_mix_w1.weight") // MIXES
        low = ops.activated(mix, self.matrix("w1", MIXES * rank, n), "tanh")
        ((stacked, _),) = self.w.experts([f"{self.b}time_mix_w2"], MIXES, n, rank, ops.device.max_binding)
        matrices = HeadMatrices(MIXES, stacked, n, rank)
        changes = ops.rows("mix_changes", MIXES * n)
        own, to = latent_attention.Columns(low, 0, rank), latent_attention.Columns(changes, 0, n)
        latent_attention.products(ops, own, matrices, to, attended=False)
        if f"{self.b}time_mix_lerp_fused.weight" in self.w:
            factors = self.vector("lerp_fused", size=MIXES)
        else:  # of older files
            factors = self.vector(*(f"lerp_{part}" for part in "wkvrg"))
        return token_shift(ops, x, factors, MIXES, window, changes)
