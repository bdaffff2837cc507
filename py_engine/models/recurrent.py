"""Layers with a state in place of attention.

Mamba (Gu and Dao 2023), Mamba-2 (Dao and Gu 2024), gated delta nets (Yang et al. 2024), Kimi's (Kimi Team 2025).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models.common import dimension, natural, switch
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.rows import RowNorm, norm_into
from py_engine.plan.ssm import Columns, GatedNorm, Kernel, Scan, gated_norm, ssm_conv, ssm_scan
from py_engine.plan.states import MAX_TAPS, States, StateShape
from py_engine.plan.weights import Weights

SIZES = ("conv_kernel", "inner_size", "state_size", "time_step_rank")
UNGROUPED = ("jamba", "mamba")  # whose group count means nothing
MAX_KEY = 512  # values of a key, of which a thread holds an eighth


@dataclass(frozen=True)
class StateSpace:
    """The sizes of recurrent layers by their GGUF names, `ssm.*`.

    `time_step_rank`: heads, of `group_count` keys. Without a group count, of Mamba: the columns that dt is made of.
    """

    conv_kernel: int
    inner_size: int
    state_size: int
    time_step_rank: int
    group_count: int
    convolves_keys: bool = True  # the convolution's channels are values, keys and queries; else values
    normalises: bool = False  # dt, keys and queries have norms without weights
    negative_rates: bool = False  # of decays with a bound: the file's are those of decays without one
    sigmoid_gates: bool = False  # of delta nets' results, in place of silu
    unit_eps: float = 0.0  # of the L2 norms of delta nets; 0: that of the other norms
    decay_bound: float = 0.0  # of Kimi's: the smallest exponent of a decay; 0: there is none

    @classmethod
    def from_gguf(cls, header: Header) -> StateSpace:
        """Read and check the metadata. WispError missing_metadata or corrupt_header."""
        conv_kernel, inner_size, state_size, rank = (dimension(header, f"ssm.{name}") for name in SIZES)
        groups = 0 if header.architecture in UNGROUPED else natural(header, "ssm.group_count")
        plain = header.architecture == "mamba" and switch(header, "ssm.dt_b_c_rms", False)
        return cls(conv_kernel, inner_size, state_size, rank, groups, normalises=plain).checked()

    def checked(self) -> StateSpace:
        """The sizes themselves. WispError corrupt_header if no kernel can have them."""
        fits = self.group_count == 0 or (
            self.inner_size % self.time_step_rank == 0 and self.time_step_rank % self.group_count == 0
        )
        if not fits or not 1 < self.conv_kernel <= MAX_TAPS + 1 or self.state_size > MAX_KEY:
            raise WispError(
                f"Wisp cannot run states of {self.time_step_rank} heads and {self.group_count} groups with "
                f"{self.inner_size} values, keys of {self.state_size}, a convolution over {self.conv_kernel} tokens.",
                "corrupt_header",
            )
        return self

    @property
    def channels(self) -> int:
        """Channels of the convolution."""
        return self.inner_size + (2 * self.group_count * self.state_size if self.convolves_keys else 0)

    @property
    def shape(self) -> StateShape:
        """The shape of a layer's state."""
        heads = self.time_step_rank if self.group_count else 1
        return StateShape(heads, self.inner_size // heads, self.state_size, self.channels, self.conv_kernel - 1)


@dataclass(frozen=True)
class RecurrentLayer:
    """One recurrent layer. `b`: the prefix of its tensors' names. `eps`: of its norms."""

    ssm: StateSpace
    w: Weights
    ops: Ops
    b: str
    eps: float

    def mixed(self, x: Buffer, norm: Weight | None, n_embd: int, states: States) -> Buffer:
        """The input of the output matrix, (n, inner_size), for x normalised with `norm`."""
        if self.ssm.group_count == 0:
            return self.mamba(x, norm, n_embd, states)
        layer = self.mamba2 if self.b + "ssm_d" in self.w else self.delta_net
        if self.b + "ssm_f_a.weight" in self.w:
            layer = self.kimi_delta_net
        elif self.b + "ssm_x.weight" in self.w:
            layer = self.plamo2
        return layer(x, norm, n_embd, states)

    def mamba(self, x: Buffer, norm: Weight | None, n_embd: int, states: States) -> Buffer:
        """mixed() of Mamba: dt, keys and queries are projections of the convolution's result."""
        ssm, w, ops, b = self.ssm, self.w, self.ops, self.b
        inner, size, rank = ssm.inner_size, ssm.state_size, ssm.time_step_rank
        stack = w.stack([(b + "ssm_in.weight", 2 * inner)], n_embd)
        rows = ops.normed_stack("ssm_in", x, Projection(stack, None, norm, self.eps))  # values, z
        mixed = self._convolution(rows, 0, states)
        steps, k, q = self._projected(mixed, {"dt": rank, "b": size, "c": size})
        dt = ops.project("ssm_steps", steps, w.matrix(b + "ssm_dt.weight", inner, rank), None)
        rates = w.vector((b + "ssm_a", size * inner), (b + "ssm_dt.bias", inner), (b + "ssm_d", inner))
        scan = Scan("s6", Columns(mixed), Columns(k), Columns(q), 1, Columns(dt), rates)
        y = ssm_scan(ops, scan, ssm.shape, states)
        return gated_norm(ops, y, rows, inner, inner, GatedNorm(1, None, self.eps, gate_first=True))

    def plamo2(self, x: Buffer, norm: Weight | None, n_embd: int, states: States) -> Buffer:
        """mixed() of PLaMo 2: Mamba-2's scan, of what Mamba's projections give."""
        ssm, w, ops, b = self.ssm, self.w, self.ops, self.b
        inner, size, heads = ssm.inner_size, ssm.state_size, ssm.time_step_rank
        tensor, each = b + "ssm_in.weight", inner // heads  # its rows are each head's z, then its values
        z, values = ([((2 * head + half) * each, each) for head in range(heads)] for half in (0, 1))
        parts = [(values, tensor + ".values"), (z, tensor + ".z")]
        stack = w.joined([w.part(tensor, 2 * inner, n_embd, ranges, name) for ranges, name in parts])
        rows = ops.normed_stack("ssm_in", x, Projection(stack, None, norm, self.eps))
        mixed = self._convolution(rows, 0, states)
        rank = w.rows(b + "ssm_x.weight") - 2 * size
        k, q, steps = self._projected(mixed, {"b": size, "c": size, "dt": rank})
        dt = ops.project("ssm_steps", steps, w.matrix(b + "ssm_dt.weight", heads, rank), None)
        rates = w.vector((b + "ssm_a", heads), (b + "ssm_dt.bias", heads), (b + "ssm_d", heads))
        scan = Scan("ssd", Columns(mixed), Columns(k), Columns(q), 1, Columns(dt), rates)
        y = ssm_scan(ops, scan, ssm.shape, states)
        return gated_norm(ops, y, rows, inner, inner, GatedNorm(1, None, self.eps, gate_first=True))

    def _projected(self, mixed: Buffer, sizes: dict[str, int]) -> list[Buffer]:
        """ssm_x times the convolution's result in parts of these sizes, each with its norm if the file has one."""
        w, ops, b, tensor = self.w, self.ops, self.b, f"{self.b}ssm_x.weight"
        parts, first = [], 0
        for name, count in sizes.items():
            part = w.part(tensor, sum(sizes.values()), self.ssm.inner_size, [(first, count)], f"{tensor}.{name}")
            y = ops.normed_stack(f"ssm_{name}", mixed, Projection(w.joined([part])))
            own = f"{b}ssm_{name}_norm"  # PLaMo 2's have no ending
            if weight := w.optional_vector((own if own in w else own + ".weight", count)):
                y = ops.rms_norm(f"ssm_{name}_normed", y, weight, self.eps)
            elif self.ssm.normalises:
                plain, y = y, ops.rows(f"ssm_{name}_normed", count)
                norm_into(ops, plain, RowNorm(ops.constant(f"ones.{count}", [1.0] * count), count, self.eps), y)
            parts.append(y)
            first += count
        return parts

    def mamba2(self, x: Buffer, norm: Weight | None, n_embd: int, states: States) -> Buffer:
        """mixed() of Mamba-2."""
        ssm, w, ops, b = self.ssm, self.w, self.ops, self.b
        inner, heads, keys = ssm.inner_size, ssm.time_step_rank, ssm.group_count * ssm.state_size
        stack = w.stack([(b + "ssm_in.weight", inner + ssm.channels + heads)], n_embd)
        rows = ops.normed_stack("ssm_in", x, Projection(stack, None, norm, self.eps))  # z, values, keys, queries, dt
        mixed = self._convolution(rows, inner, states)
        rates = w.vector((b + "ssm_a", heads), (b + "ssm_dt.bias", heads), (b + "ssm_d", heads))
        v, k, q = (Columns(mixed, at) for at in (0, inner, inner + keys))
        scan = Scan("ssd", v, k, q, ssm.group_count, Columns(rows, inner + ssm.channels), rates)
        y = ssm_scan(ops, scan, ssm.shape, states)
        weight = w.optional_vector((b + "ssm_norm.weight", inner))
        return gated_norm(ops, y, rows, 0, inner, GatedNorm(ssm.group_count, weight, self.eps, gate_first=True))

    def delta_net(self, x: Buffer, norm: Weight | None, n_embd: int, states: States) -> Buffer:
        """mixed() of a gated delta net."""
        ssm, w, ops, b = self.ssm, self.w, self.ops, self.b
        inner, heads, keys = ssm.inner_size, ssm.time_step_rank, ssm.group_count * ssm.state_size
        # queries, keys, values, z, and the inputs of the decay (alpha) and of the step (beta)
        stack = w.joined([*self._queries_to_gate(n_embd), *self._alpha_and_beta(n_embd)])
        rows = ops.normed_stack("ssm_in", x, Projection(stack, None, norm, self.eps))
        mixed = self._convolution(rows, 0, states)
        rates = w.vector((b + "ssm_a", heads), (b + "ssm_dt.bias", heads))
        alpha, tiled = ssm.channels + inner, b + "ssm_ba.weight" not in w
        v, k, q = (Columns(mixed, at) for at in (2 * keys, keys, 0))
        scan = Scan("delta", v, k, q, ssm.group_count, Columns(rows, alpha), rates, alpha + heads, self.eps, tiled)
        y = ssm_scan(ops, scan, ssm.shape, states)
        weight = w.vector((b + "ssm_norm.weight", inner // heads))
        how = GatedNorm(heads, weight, self.eps, gate_first=False, sigmoid=ssm.sigmoid_gates)
        return gated_norm(ops, y, rows, ssm.channels, inner, how)

    def kimi_delta_net(self, x: Buffer, norm: Weight | None, n_embd: int, states: States) -> Buffer:
        """mixed() of a gated delta net in which each dimension of a key has a decay of its own."""
        ssm, w, ops, b = self.ssm, self.w, self.ops, self.b
        inner, heads, size = ssm.inner_size, ssm.time_step_rank, ssm.state_size
        if norm and not ops.small_batch:  # a small batch's products normalise their input themselves
            x, norm = ops.normed_input(x, norm, self.eps), None
        parts = [(f"{b}attn_{part}.weight", inner) for part in "qkv"]
        if (whole := b + "attn_qkv.weight") in w:
            parts = [(whole, 3 * inner)]
        stack = w.stack(parts, n_embd)
        rows = ops.normed_stack("ssm_in", x, Projection(stack, None, norm, self.eps))
        mixed = self._convolution(rows, 0, states)

        def low_rank(part: str) -> tuple[Buffer, Projection]:
            if f"{b}ssm_{part}_b.weight" not in w:  # one matrix: Kimi K3's for the gates, Ling 3's
                whole = f"{b}ssm_{part}.weight" if f"{b}ssm_{part}.weight" in w else f"{b}ssm_{part}_a.weight"
                return x, Projection([w.matrix(whole, inner, n_embd)], None, norm, self.eps)
            first = Projection([w.matrix(f"{b}ssm_{part}_a.weight", size, n_embd)], None, norm, self.eps)
            low = ops.normed_stack(f"ssm_{part}_low", x, first)
            return low, Projection([w.matrix(f"{b}ssm_{part}_b.weight", inner, size)])

        beta = Projection([w.matrix(b + "ssm_beta.weight", heads, n_embd)], None, norm, self.eps)
        gates = ops.side_by_side("ssm_gates", [low_rank("f"), (x, beta)])
        rates = w.vector((b + "ssm_a", heads), (b + "ssm_dt.bias", inner))
        q, k, v = (Columns(mixed, i * inner) for i in range(3))
        eps = ssm.unit_eps or self.eps
        scan = Scan("delta", v, k, q, heads, Columns(gates), rates, inner, eps, per_key=True)
        y = ssm_scan(ops, replace(scan, bound=ssm.decay_bound, negative_rates=ssm.negative_rates), ssm.shape, states)
        z = ops.normed_stack("ssm_z", *low_rank("g"))
        weight = w.vector((b + "ssm_norm.weight", inner // heads))
        return gated_norm(ops, y, z, 0, inner, GatedNorm(heads, weight, self.eps, gate_first=False, sigmoid=True))

    def _queries_to_gate(self, n_embd: int) -> list[Weight]:
        """The matrices of queries, keys, values and z."""
        ssm, w, b = self.ssm, self.w, self.b
        if b + "ssm_in.weight" not in w:
            sizes = (("attn_qkv", ssm.channels), ("attn_gate", ssm.inner_size))
            return [w.part(f"{b}{name}.weight", rows, n_embd, [(0, rows)]) for name, rows in sizes]
        # older files have one matrix, with the four parts of each group of heads together
        key, value = ssm.state_size, ssm.inner_size // ssm.group_count
        return self._of_groups("ssm_in", {"queries": key, "keys": key, "values": value, "z": value}, n_embd)

    def _alpha_and_beta(self, n_embd: int) -> list[Weight]:
        """The matrices of alpha and beta. Qwen3-Next has one, with both parts of each group of heads together."""
        ssm, w, b = self.ssm, self.w, self.b
        heads = ssm.time_step_rank
        if b + "ssm_ba.weight" in w:
            each = heads // ssm.group_count
            beta, alpha = self._of_groups("ssm_ba", {"beta": each, "alpha": each}, n_embd)
            return [alpha, beta]
        return [w.part(f"{b}{name}.weight", heads, n_embd, [(0, heads)]) for name in ("ssm_alpha", "ssm_beta")]

    def _of_groups(self, tensor: str, sizes: dict[str, int], n_embd: int) -> list[Weight]:
        """The parts of a matrix whose rows are every part of the first group of heads, then of the next.

        `sizes`: rows of each part in one group.
        """
        groups, whole, name, first = self.ssm.group_count, sum(sizes.values()), f"{self.b}{tensor}.weight", 0
        parts = []
        for part, size in sizes.items():
            ranges = [(i * whole + first, size) for i in range(groups)]
            parts.append(self.w.part(name, groups * whole, n_embd, ranges, f"{name}.{part}"))
            first += size
        return parts

    def _convolution(self, x: Buffer, first: int, states: States) -> Buffer:
        """The convolution of the channels in x's columns from `first` on."""
        ssm, w, b = self.ssm, self.w, self.b
        parts = [""] if b + "ssm_conv1d.weight" in w else ["_q", "_k", "_v"]
        values = ssm.channels * ssm.conv_kernel // len(parts)
        weights = w.vector(*((f"{b}ssm_conv1d{part}.weight", values) for part in parts))
        bias = w.optional_vector((b + "ssm_conv1d.bias", ssm.channels))
        return ssm_conv(self.ops, x, first, Kernel(weights, bias), ssm.shape, states)
