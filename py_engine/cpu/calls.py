"""The calls of one list under construction, and the fields that many of them have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from py_engine.cpu.call_layouts import WORD, pack
from py_engine.plan.panels import FORMATS, GROUP, ROUNDED_GROUP_BYTES
from py_engine.plan.plan import Buffer, Op, Weight


class Addresses(Protocol):
    """Where everything is in the module's memory: bytes that are multiples of a word."""

    def of(self, bound: Buffer | Weight) -> int:
        """The address of a buffer or a weight."""

    @property
    def part(self) -> int:
        """Positions of a part of the context: attention computes them one after the other, or in parallel."""

    @property
    def prepared(self) -> int:
        """The address of x as products read it."""

    @property
    def rows(self) -> int:
        """The address of rows between two calls of one op."""


class Words:
    """Addresses as calls have them: in words."""

    def __init__(self, memory: Addresses) -> None:
        self._memory, self.part = memory, memory.part
        self.prepared, self.rows = memory.prepared // WORD, memory.rows // WORD

    def of(self, bound: Buffer | Weight) -> int:
        """The address of a buffer or a weight."""
        return self._memory.of(bound) // WORD


@dataclass(frozen=True)
class Prepared:
    """x as a product reads it: its address, the bytes of a row, and whether it is floats."""

    address: int
    row: int
    exact: int


@dataclass(frozen=True)
class Rows:
    """Rows of floats, `stride` apart, and the address of the weights of their norm (0: they have none)."""

    address: int
    stride: int
    norm: int
    eps: float


class Calls:
    """The calls of one list. `exact`: products with floats, not with x rounded to bytes."""

    def __init__(self, memory: Addresses, exact: bool) -> None:
        self.memory, self.exact = Words(memory), exact
        self.calls: list[bytes] = []
        self.held: tuple[Any, ...] = ()  # what `prepared` holds: the address of x first

    def add(self, name: str, **values: Any) -> None:
        """Append a call."""
        self.calls.append(pack(name, values))

    def address(self, op: Op, name: str) -> int:
        """The address of a binding; 0 if the op has none of that name."""
        return self.memory.of(op.bindings[name]) if name in op.bindings else 0

    def prepare(self, op: Op, weight: Weight, *, last: int = 0, repeat: int = 1) -> Prepared:
        """Have x prepared for products with a weight. `repeat`: rows per token."""
        x = op.bindings["x"]
        assert isinstance(x, Buffer)
        norm = self.address(op, "norm")
        if self._is_exact(weight) and not norm and not (last and x.shape[0] > 1):
            return Prepared(self.memory.of(x), 4 * x.shape[-1], 1)
        rows = Rows(self.memory.of(x), x.shape[-1], norm, op.consts.get("eps", 0.0) if norm else 0.0)
        return self.prepare_rows(self.address(op, "state"), rows, weight, last=last, repeat=repeat)

    def prepare_rows(self, state: int, x: Rows, weight: Weight, *, last: int = 0, repeat: int = 1) -> Prepared:
        """Have rows prepared for products with a weight."""
        cols, exact = weight.cols, self._is_exact(weight)
        row = 4 * cols if exact else cols // GROUP * ROUNDED_GROUP_BYTES
        key = (x.address, x.stride, cols, x.norm, x.eps, exact, last, repeat)
        if key != self.held:
            self.add(
                "prepare", state=state, last=last, repeat=repeat, exact=exact, x=x.address, x_stride=x.stride,
                cols=cols, norm=x.norm, eps=x.eps, to=self.memory.prepared, to_stride=row,
            )  # fmt: skip
            self.held = key
        return Prepared(self.memory.prepared, row, exact)

    def _is_exact(self, weight: Weight) -> int:
        """Whether products with a weight read x as floats."""
        return int(self.exact or FORMATS[weight.type].kind == "FLOATS")

    def drop_prepared(self, address: int) -> None:
        """Forget the prepared x if it was made of the rows at this address, which have changed."""
        if self.held and self.held[0] == address:
            self.held = ()


NO_SCALES = {"scales": 0, "scale_row_1": 0, "scale_row_2": 0}  # of a product whose matrices have none


def product(m: Calls, op: Op, x: Rows, y: int, y_stride: int) -> None:
    """y = x, normalised, times the op's matrix, of an op that is more than a product."""
    w, state = matrix_of(op), state_of(m, op)
    prepared = m.prepare_rows(state, x, w)
    m.add(
        "product", state=state, last=0, exact=prepared.exact, x=prepared.address, x_row=prepared.row,
        w=m.memory.of(w), type=w.type, rows=w.rows, cols=w.cols, row0=0, factor=0.0, bias=0, **NO_SCALES,
        y=y, y_stride=y_stride,
    )  # fmt: skip


def batch_fields(m: Calls, op: Op) -> dict[str, Any]:
    """The fields that say which tokens a batch has."""
    return {"state": m.address(op, "state"), "per_token": int(op.params.get("STATE_PER_TOKEN", 0))}


def segment_fields(op: Op) -> dict[str, Any]:
    return {"segments": op.params["SEGMENTS"] if op.params.get("PACKED") else 0}


def paging_fields(op: Op) -> dict[str, Any]:
    page = int(op.params["PAGE"])
    return {
        "page": page,
        "table": op.params["TABLE"] if page else 0,
        "pages": op.params["PAGES"] if page else 0,
    }


def key_fields(op: Op) -> dict[str, int]:
    """The fields that say where compressed keys are; zeros if there are none."""
    names = {"key_table": "KEY_TABLE", "step": "STEP", "key_width": "KEY_WIDTH"}
    return {field: int(op.params.get(name, 0)) for field, name in names.items()}


def stride_of(op: Op, name: str) -> int:
    bound = op.bindings[name]
    assert isinstance(bound, Buffer)
    return bound.shape[-1]


def limits_of(op: Op) -> dict[str, float]:
    """The limits of an activation's factors; 0: none."""
    return {"limit": float(op.params.get("LIMIT", 0)), "up_limit": float(op.params.get("UP_LIMIT", 0))}


def matrix_of(op: Op) -> Weight:
    weight = op.bindings["w"]
    assert isinstance(weight, Weight)
    return weight


def state_of(m: Calls, op: Op) -> int:
    """The address of the state: also of ops that do not bind it, because a GPU counts tokens in workgroups."""
    return m.memory.of(STATE)


STATE = Buffer("state", ())
