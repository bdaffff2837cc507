"""Layers with a state in place of attention: Mamba-2 (Dao and Gu 2024)."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.models.common import dimension
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Buffer, Weight
from py_engine.plan.ssm import GatedNorm, Scan, gated_norm, ssm_conv, ssm_scan
from py_engine.plan.states import MAX_TAPS, States, StateShape
from py_engine.plan.weights import Weights

MAX_KEY = 512  # values of a key, of which a thread holds an eighth


@dataclass(frozen=True)
class StateSpace:
    """The sizes of recurrent layers by their GGUF names, `ssm.*`. `time_step_rank`: heads, of `group_count` keys."""

    conv_kernel: int
    inner_size: int
    state_size: int
    time_step_rank: int
    group_count: int

    @classmethod
    def from_gguf(cls, header: Header) -> StateSpace:
        """Read and check the metadata. WispError missing_metadata or corrupt_header."""
        names = ("conv_kernel", "inner_size", "state_size", "time_step_rank", "group_count")
        self = cls(*(dimension(header, f"ssm.{name}") for name in names))
        fits = self.inner_size % self.time_step_rank == 0 and self.time_step_rank % self.group_count == 0
        if not fits or not 1 < self.conv_kernel <= MAX_TAPS + 1 or self.state_size > MAX_KEY:
            raise WispError(
                f"Wisp cannot run states of {self.time_step_rank} heads and {self.group_count} groups with "
                f"{self.inner_size} values, keys of {self.state_size}, a convolution over {self.conv_kernel} tokens.",
                "corrupt_header",
            )
        return self

    @property
    def channels(self) -> int:
        """Channels of the convolution: values, keys and queries."""
        return self.inner_size + 2 * self.group_count * self.state_size

    @property
    def shape(self) -> StateShape:
        """The shape of a layer's state."""
        heads = self.time_step_rank
        return StateShape(heads, self.inner_size // heads, self.state_size, self.channels, self.conv_kernel - 1)


@dataclass(frozen=True)
class RecurrentLayer:
    """One recurrent layer. `b`: the prefix of its tensors' names. `eps`: of its norms."""

    ssm: StateSpace
    w: Weights
    ops: Ops
    b: str
    eps: float

    def mamba2(self, x: Buffer, norm: Weight | None, n_embd: int, states: States) -> Buffer:
        """The input of the output matrix, (n, inner_size), for x normalised with `norm`."""
        ssm, w, ops, b = self.ssm, self.w, self.ops, self.b
        inner, heads, keys = ssm.inner_size, ssm.time_step_rank, ssm.group_count * ssm.state_size
        stack = w.stack([(b + "ssm_in.weight", inner + ssm.channels + heads)], n_embd)
        rows = ops.normed_stack("ssm_in", x, Projection(stack, None, norm, self.eps))  # z, values, keys, queries, dt
        mixed = self._convolution(rows, inner, states)
        rates = w.vector((b + "ssm_a", heads), (b + "ssm_dt.bias", heads), (b + "ssm_d", heads))
        scan = Scan("ssd", mixed, 0, inner, inner + keys, ssm.group_count, rows, inner + ssm.channels, 0, rates)
        y = ssm_scan(ops, scan, ssm.shape, states)
        weight = w.optional_vector((b + "ssm_norm.weight", inner))
        return gated_norm(ops, y, rows, 0, inner, GatedNorm(ssm.group_count, weight, self.eps, gate_first=True))

    def _convolution(self, x: Buffer, first: int, states: States) -> Buffer:
        """The convolution of the channels in x's columns from `first` on."""
        ssm, w, b = self.ssm, self.w, self.b
        weights = w.vector((b + "ssm_conv1d.weight", ssm.channels * ssm.conv_kernel))
        bias = w.optional_vector((b + "ssm_conv1d.bias", ssm.channels))
        return ssm_conv(self.ops, x, first, weights, bias, ssm.shape, states)
