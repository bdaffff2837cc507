"""Collects the lists of one encoder while it is planned."""

from __future__ import annotations

from dataclasses import replace

from py_engine.errors import WispError
from py_engine.models.projectors.tower import Tower
from py_engine.plan.cache import UNPAGED, Cache
from py_engine.plan.encoder import EncoderPlan, Stage
from py_engine.plan.kernels import Device, has_param
from py_engine.plan.ops import Ops
from py_engine.plan.packing import packed_params
from py_engine.plan.pages import SEGMENT_WORDS
from py_engine.plan.plan import Buffer, Plan
from py_engine.plan.rope import Pairs, Rope, table
from py_engine.plan.rows import taps
from py_engine.plan.weights import Weights

SEGMENT_TABLES = ("pictures", "windows", "quarters")  # in the state; the last: pictures after squares became rows


class Stages:
    """The stages of one encoder, in order."""

    def __init__(self, tower: Tower, w: Weights, plan: Plan, device: Device, rows: int) -> None:
        self.tower, self.w, self.plan, self.device, self.most = tower, w, plan, device, rows
        self.ops: Ops  # of the newest stage
        self._stages: list[Stage] = []
        self._capacity: dict[str, int] = {}
        self._inputs: dict[str, tuple[int, ...]] = {}

    def begin(self, rows: str, most: int) -> Ops:
        """Begin a stage over rows of a name, at most so many."""
        name = f"{self.tower.modality}.{len(self._stages)}"
        self._stages.append(Stage(name, rows))
        self._capacity[rows] = most
        self.ops = Ops(self.plan, name, most, self.device)
        self.ops.name = f"{self.tower.modality}.{rows}"  # stages over the same rows share their buffers
        self.ops.precise = True
        return self.ops

    def input(self, name: str, cols: int, rows: int = 0) -> Buffer:
        """Rows that the host writes, f32; as many as the stage has, if `rows` does not say how many."""
        shape = rows or self.ops.batch, -(-cols // 32) * 32
        made = self.ops.buffer(f"{self.tower.modality}.{name}", shape, "f32", "state")
        self._inputs[made.name] = made.shape
        return made

    def words(self, name: str, count: int) -> Buffer:
        """Words that the host writes, u32."""
        made = self.ops.buffer(f"{self.tower.modality}.{name}", (count,), "u32", "state")
        self._inputs[made.name] = made.shape
        return made

    def taps(self, name: str, count: int) -> Buffer:
        """Taps of each row, which the host writes."""
        made = taps(self.ops, f"{self.tower.modality}.{name}", count)
        self._inputs[made.name] = made.shape
        return made

    def rope(self, pairs: Pairs = Pairs.HALVES) -> Rope:
        """A rotation whose turns the host writes for each token."""
        return self.rope_of("turns", pairs)

    def rope_of(self, name: str, pairs: Pairs = Pairs.HALVES, dim: int = 0) -> Rope:
        """A rotation by the turns of an input of that name. `dim`: values of a head that rotate, if not all."""
        dim = dim or self.tower.head_dim
        if pairs is Pairs.IN_EACH_HALF and dim % 8:  # rope.wgsl rotates four values of a half at once
            raise WispError(f"Wisp cannot rotate halves of heads that are {dim} wide.", "unsupported_architecture")
        made = self.ops.buffer(f"{self.tower.modality}.{name}", (self.ops.batch, dim // 2), "u32", "state")
        self._inputs[made.name] = made.shape
        return Rope(dim, pairs, made, per_token=True)

    def no_rope(self) -> Rope:
        """No rotation."""
        name = f"{self.tower.modality}.unrotated"
        made = self.ops.buffer(name, (4,), "u32", "state")
        self.plan.constants[name] = table([0.0] * 4)
        return Rope(0, Pairs.HALVES, made)

    def cache(self, width: int = 0) -> Cache:
        """Keys and values of a block, valid within it only. `width`: of a row, if not the encoder's."""
        kind = self.ops.input_dtype
        shape, end = (self.ops.batch, width or self.tower.widths[1]), f".{width}" if width else ""
        k, v = (self.ops.buffer(f"{self.tower.modality}.{name}{end}", shape, kind) for name in ("k", "v"))
        return Cache(k, v, kind, UNPAGED)

    def segments(self, first_op: int, table: str = "pictures") -> None:
        """Restrict attention to a table's segments, in the ops of the newest stage from `first_op` on."""
        params = packed_params(self.plan)
        params["SEGMENTS"] += SEGMENT_TABLES.index(table) * SEGMENT_WORDS * self.most
        ops = self.ops.ops
        ops[first_op:] = [
            replace(op, params=op.params | params) if has_param(op.kernel, "PACKED") else op for op in ops[first_op:]
        ]

    def finish(self, output: Buffer, width: int) -> EncoderPlan:
        """The encoder, whose results are in the buffer."""
        first = packed_params(self.plan)["SEGMENTS"]
        segments = {name: first + i * SEGMENT_WORDS * self.most for i, name in enumerate(SEGMENT_TABLES)}
        return EncoderPlan(tuple(self._stages), output.name, width, self._capacity, segments, self._inputs)
