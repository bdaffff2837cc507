"""Norms and products, as ops.py's layers use them, and their lowering to dispatches. Shapes as there."""

from __future__ import annotations

from dataclasses import dataclass

from py_engine.plan import low_rank, mixed_types, products
from py_engine.plan.op_list import OpList, strided
from py_engine.plan.plan import Buffer, PerToken, Weight
from py_engine.plan.products import ADD, STORE, Epilogue, Product
from py_engine.plan.rows import norm_threads
from py_engine.plan.shared_constants import THREADS


@dataclass(frozen=True)
class Projection:
    """Matrices stacked by rows, with a bias, applied to the RMS norm of x: (x / rms(x) * norm) W^T + bias.

    Without `norm`, x is used as it is. The stack has one weight for each run of tensors of the same type.
    """

    stack: list[Weight]
    bias: Weight | None = None
    norm: Weight | None = None
    eps: float = 0.0

    @property
    def rows(self) -> int:
        """Rows of the whole stack."""
        return sum(w.rows for w in self.stack)


class LinearOps(OpList):
    """A list's norms and products with matrices."""

    # -- norms --------------------------------------------------------------------------------------------------------

    def rms_norm(
        self, name: str, x: Buffer, norm: Weight, eps: float, dtype: str = "f32", bias: Weight | None = None
    ) -> Buffer:
        """x / rms(x) * norm + bias, row by row."""
        y = self.rows(name, norm.cols, dtype)
        self._norm(x, norm, bias, y, eps)
        return y

    def biased_rms_norm(self, name: str, x: Buffer, norm: Weight, bias: Weight, eps: float) -> Buffer:
        """rms_norm() of as many rows as x has, which may be fewer than the batch's, such as the last tokens'."""
        y = self.buffer(f"{self.name}.{name}", x.shape)
        self._norm(x, norm, bias, y, eps)
        return y

    def normed_input(self, x: Buffer, norm: Weight, eps: float) -> Buffer:
        """x / rms(x) * norm for products, which are all that reads it."""
        return self.rms_norm("normed", x, norm, eps, self.input_dtype)

    def layer_norm(
        self, name: str, x: Buffer, norm: Weight, bias: Weight | None, eps: float, dtype: str = "f32"
    ) -> Buffer:
        """(x - mean(x)) / deviation(x) * norm + bias, row by row."""
        y = self.buffer(f"{self.name}.{name}", x.shape, dtype)
        self.layer_norm_into(y, x, norm, bias, eps)
        return y

    def layer_norm_into(self, y: Buffer, x: Buffer, norm: Weight, bias: Weight | None, eps: float) -> None:
        """y = (x - mean(x)) / deviation(x) * norm + bias, row by row."""
        self._norm(x, norm, bias, y, eps, "layer")

    def norm_into(self, y: Buffer, x: Buffer, norm: Weight, eps: float) -> None:
        """y = x / rms(x) * norm, row by row."""
        self._norm(x, norm, None, y, eps)

    def add_norm(self, x: Buffer, norm: Weight, add_to: Buffer, eps: float) -> None:
        """add_to += x / rms(x) * norm."""
        self._norm(x, norm, None, add_to, eps, "add_rms")

    def _norm(self, x: Buffer, norm: Weight, bias: Weight | None, y: Buffer, eps: float, kind: str = "rms") -> None:
        flags = {"MEAN": int(kind == "layer"), "BIAS": int(bias is not None), "ADD": int(kind == "add_rms")}
        flags |= {"X16": int(x.dtype == "f16"), "Y16": int(y.dtype == "f16")} | strided(x, norm.cols)
        self.add(
            "norm",
            {"COLS": norm.cols, "WG": norm_threads(self.device, norm.cols)} | flags,
            {"eps": eps},
            {"x": x, "norm": norm, "y": y} | ({"bias": bias} if bias else {}),
            PerToken(),
        )

    def add_scaled(self, x: Buffer, scale: float, add_to: Buffer, gate: Buffer | None = None) -> None:
        """add_to += scale * x; with a gate (n, 1): += scale * sigmoid(gate) * x."""
        self.add(
            "add_scaled",
            {"VECS": x.shape[1] // 4, "GATED": int(gate is not None)},
            {"scale": scale},
            {"state": self.state, "x": x, "y": add_to} | ({"gate": gate} if gate else {}),
            -(-x.shape[1] // (4 * THREADS)),
            PerToken(),
        )

    # -- matrices -----------------------------------------------------------------------------------------------------

    def linear(self, x: Buffer, weight: Weight, bias: Weight | None, add_to: Buffer, scale: float = 1.0) -> None:
        """add_to += scale * (x W^T + bias)."""
        if scale == 1:
            low_rank.append(self, [Product(x, weight, add_to, bias, ADD)])
        elif self.small_batch and not low_rank.adapted(self, weight):
            products.append(self, Product(x, weight, add_to, bias, Epilogue("add", {"FACTOR": scale})))
        else:
            self.add_scaled(self.project("out", x, weight, bias), scale, add_to)

    def project(self, name: str, x: Buffer, weight: Weight, bias: Weight | None) -> Buffer:
        """x W^T + bias."""
        y = self.rows(name, weight.rows)
        self.project_into(y, x, weight, bias)
        return y

    def project_into(self, y: Buffer, x: Buffer, weight: Weight, bias: Weight | None = None) -> None:
        """y = x W^T + bias."""
        low_rank.append(self, [Product(x, weight, y, bias)])

    def normed_stack(self, name: str, x: Buffer, projection: Projection) -> Buffer:
        """The projection of x: (n, padded rows)."""
        return self._stack(name, *self._normed(x, projection))

    def side_by_side(
        self, name: str, parts: list[tuple[Buffer, Projection]], bias: Weight | None = None, cols: int = 0
    ) -> Buffer:
        """Projections of several inputs, which follow each other in a row: (n, padded rows).

        `bias`: of the first parts, to the end of one of them. `cols`: columns of the row, if it has more.
        """
        y, row0 = self.rows(name, max(cols, sum(projection.rows for _, projection in parts))), 0
        for given in parts:
            x, projection = self._normed(*given)
            for weight in projection.stack:
                own = bias if bias and row0 < bias.cols else None
                low_rank.append(self, [Product(x, weight, y, own, row0=row0, norm=projection.norm, eps=projection.eps)])
                row0 += weight.rows
        return y

    def _normed(self, x: Buffer, projection: Projection) -> tuple[Buffer, Projection]:
        """The input of products, and their projection: without its norm if they cannot normalise the input."""
        if projection.norm and not (self.small_batch and all(self._norms(w, projection) for w in projection.stack)):
            x = self.normed_input(x, projection.norm, projection.eps)
            projection = Projection(projection.stack, projection.bias)
        return x, projection

    def _stack(self, name: str, x: Buffer, projection: Projection) -> Buffer:
        """One product per matrix of the stack, each with the norm."""
        return self._held_stack(name, x, projection)[0]

    def _held_stack(
        self, name: str, x: Buffer, projection: Projection, gate: low_rank.Gate | None = None, *, hold: int = 0
    ) -> tuple[Buffer, Epilogue | None]:
        """_stack(), and what is left to do (low_rank.append)."""
        y = self.rows(name, projection.rows)
        return y, low_rank.append(self, self._products(x, projection, y), gate, hold=hold)

    def _products(self, x: Buffer, projection: Projection, y: Buffer, epilogue: Epilogue = STORE) -> list[Product]:
        """The products with the matrices of a stack."""
        found, row0, norm, threads = list[Product](), 0, projection.norm, mixed_types.threads(self, projection.stack)
        for w in projection.stack:
            found.append(Product(x, w, y, projection.bias, epilogue, row0, norm, projection.eps, threads))
            row0 += w.rows
        return found

    def _fusible(self, projection: Projection) -> bool:
        """Whether one dispatch can do the whole projection: a small batch, all rows in one binding, no adapters."""
        stack = projection.stack
        whole = self.small_batch and len(stack) == 1 and self._in_one_binding(stack[0])
        return whole and not low_rank.adapted(self, stack[0])

    def _stores_halves(self, projection: Projection) -> bool:
        """Whether one dispatch does the whole projection of many rows, activates it and stores it in f16."""
        weight, *more = projection.stack
        return not more and not low_rank.adapted(self, weight) and products.stores_halves(self, weight)

    def _norms(self, weight: Weight, projection: Projection) -> bool:
        """Whether a small batch's product with this matrix of the projection can normalise its input."""
        return self._in_one_binding(weight) and products.binds_norm(self.device, weight, projection.bias)

    def _in_one_binding(self, weight: Weight) -> bool:
        return len(weight.split(self.device.max_binding)) == 1
