"""One list of a plan under construction: its buffers, and the ops appended so far."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from py_engine.plan import quants
from py_engine.plan.adapters import NO_ADAPTERS, Adapters
from py_engine.plan.kernels import Device
from py_engine.plan.lists import adapted
from py_engine.plan.matrix_scales import unsupported_scale
from py_engine.plan.pages import state_words
from py_engine.plan.plan import ALWAYS, Buffer, Contexts, Op, PerToken, Plan, Weight
from py_engine.plan.shared_constants import MAX_SEQUENCES


def pad(cols: int) -> int:
    """Columns of an activation row, padded to whole groups of 32."""
    return quants.groups(cols) * quants.GROUP


def strided(x: Buffer, cols: int) -> dict[str, int]:
    """The #param that says how far rows of x are apart, if they have more than `cols` columns."""
    return {"X_STRIDE": x.shape[1] // 4} if x.shape[1] != pad(cols) else {}


class OpList:
    """A builder that appends ops to a list of a plan, for batches of at most `batch` tokens.

    `state_per_token`: every token has its own State, so that a small batch may hold tokens of several sequences.
    `adapters`: those that the list applies. With any, the list is adapted(name), which has the buffers of `name`.
    """

    def __init__(
        self, plan: Plan, name: str, batch: int, device: Device, state_per_token: bool = False,
        adapters: Adapters = NO_ADAPTERS,
    ) -> None:  # fmt: skip
        self.plan, self.batch, self.device, self.adapters = plan, batch, device, adapters
        self.name, self.state_params = name, {"STATE_PER_TOKEN": int(state_per_token)}
        self.small_batch = batch == 1 or state_per_token
        # of activations that only products read: those of many tokens multiply in f16 where the device has it
        self.input_dtype = "f16" if device.f16 and not self.small_batch else "f32"
        # of encoders of media: products of f16 are summed in f32, also where f16 is faster; a token's sums may have
        # another order in another batch
        self.precise = False
        self.ops: list[Op] = plan.lists.setdefault(self.list_of(name), [])
        self.state = self.buffer("state", (state_words(plan.n_ctx, plan.page, plan.batch),), "u32", "state")
        self.tokens = self.buffer("tokens", (MAX_SEQUENCES, plan.n_ctx + 1), "u32", "state")

    def list_of(self, name: str) -> str:
        """The name of a list that applies this builder's adapters."""
        return adapted(name) if self.adapters.count else name

    def buffer(self, name: str, shape: tuple[int, ...], dtype: str = "f32", pool: str = "activations") -> Buffer:
        """Return the plan's buffer of this name; create it if it is new."""
        b = Buffer(name, shape, dtype, pool)
        known = self.plan.buffers.setdefault(name, b)
        if known != b:
            raise ValueError(f"buffer {name} is {known.shape} {known.dtype}, not {shape} {dtype}")
        return known

    def rows(self, name: str, cols: int, dtype: str = "f32") -> Buffer:
        """Return an activation (batch, padded cols) of this list. Layers of the same width share it."""
        shape, known = (self.batch, pad(cols)), self.plan.buffers.get(f"{self.name}.{name}")
        other_width = known is not None and known.shape != shape
        return self.buffer(f"{self.name}.{name}" + (f".{cols}" if other_width else ""), shape, dtype)

    def shaped(self, name: str, shape: tuple[int, ...], dtype: str = "f32") -> Buffer:
        """Return an activation of this list. Layers of the same shape share it."""
        known = self.plan.buffers.get(f"{self.name}.{name}")
        other = known is not None and (known.shape, known.dtype) != (shape, dtype)
        return self.buffer(f"{self.name}.{name}" + (f".{'x'.join(map(str, shape))}" if other else ""), shape, dtype)

    def constant(self, name: str, values: Sequence[float]) -> Buffer:
        """The plan's buffer (1, padded) of f32 constants with this name."""
        width = pad(len(values))
        self.plan.constants[name] = struct.pack(f"<{width}f", *values, *[0.0] * (width - len(values)))
        return self.buffer(name, (1, width), "f32", "state")

    def add(
        self,
        kernel: str,
        params: Mapping[str, Any],  # Any: mypy joins the value types of `dict | dict` to object
        consts: Mapping[str, int | float],
        bindings: Mapping[str, Any],
        *grid: int | PerToken,
        contexts: Contexts = ALWAYS,
    ) -> None:
        """Append one dispatch; the arguments are Op's."""
        for bound in bindings.values():
            if isinstance(bound, Weight) and bound.scales and "scales" not in bindings:
                raise unsupported_scale(bound.sources[0][0])
        x, y, z = (*grid, 1, 1)[:3]
        self.ops.append(Op(kernel, dict(params), dict(consts), dict(bindings), (x, y, z), contexts))
