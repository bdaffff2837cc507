"""Which products of a small batch share a rounding of what they multiply."""

from dataclasses import replace

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan.ops import Ops
from py_engine.plan.plan import Buffer, Plan, Weight
from py_engine.plan.products import Product, append
from py_engine.plan.shared_constants import SHORT_BATCH
from tests.support.devices import GPU


def _matrix(name: str, rows: int, cols: int) -> Weight:
    return Weight(name, Q.Q4_0, rows, cols, ((name, 0, rows),))


def _norm(cols: int) -> Weight:
    return Weight(f"norm{cols}", Q.F32, 1, cols, ((f"norm{cols}", 0, 1),))


class Chain:
    """Products of a small batch, each of a row's norm."""

    def __init__(self) -> None:
        self.ops = Ops(Plan(8, 64, 1000), "test", SHORT_BATCH, GPU, True)

    def multiply(self, x: Buffer, name: str, rows: int, cols: int, eps: float = 1e-5) -> Buffer:
        y = self.ops.rows(name, rows)
        append(self.ops, Product(x, _matrix(f"{name}.weight", rows, cols), y, norm=_norm(cols), eps=eps))
        return y

    @property
    def kernels(self) -> list[str]:
        return [op.kernel for op in self.ops.ops]


def test_products_of_the_same_norm_share_its_bytes() -> None:
    """Also where a product of another width comes between them; each has the factors of its own rows."""
    chain = Chain()
    x = chain.ops.rows("x", 4096)
    low = chain.multiply(x, "low", 2048, 4096)
    chain.multiply(low, "q", 4096, 2048)
    chain.multiply(x, "k", 2048, 4096)
    assert chain.kernels == ["quantize_rows", "matvec_small_batch"] * 2 + ["matvec_small_batch"]
    first, _, other, _, last = chain.ops.ops
    assert [b.name for b in (first.bindings["x"], other.bindings["x"])] == [x.name, low.name]
    for name in ("xq", "xq_scale", "x_scale"):
        assert last.bindings[name] is first.bindings[name]
        assert other.bindings[name] is not first.bindings[name]


def test_what_a_product_adds_to_is_rounded_again() -> None:
    chain = Chain()
    x = chain.ops.rows("x", 4096)
    hidden = chain.multiply(x, "hidden", 4096, 4096)
    chain.ops.linear(hidden, _matrix("out", 4096, 4096), None, x)
    chain.multiply(x, "next", 4096, 4096)
    rounded = [op.bindings["x"] for op in chain.ops.ops if op.kernel == "quantize_rows"]
    assert rounded == [x, hidden, x]


def test_another_row_of_the_same_width_takes_the_place_of_the_first() -> None:
    chain = Chain()
    x, other = chain.ops.rows("x", 4096), chain.ops.rows("other", 4096)
    for rows in (x, other, x):
        chain.multiply(rows, "y", 2048, 4096)
    assert [op.bindings["x"] for op in chain.ops.ops if op.kernel == "quantize_rows"] == [x, other, x]


def test_a_norm_of_another_epsilon_has_bytes_of_its_own() -> None:
    chain = Chain()
    x = chain.ops.rows("x", 4096)
    for eps in (1e-5, 1e-6, 1e-6):
        chain.multiply(x, "y", 2048, 4096, eps)
    assert [op.consts["eps"] for op in chain.ops.ops if op.kernel == "quantize_rows"] == [1e-5, 1e-6]


def test_what_a_product_writes_as_a_view_is_rounded_again() -> None:
    chain = Chain()
    x, input_rows = chain.ops.rows("x", 4096), chain.ops.rows("input", 2048)
    chain.multiply(x, "first", 2048, 4096)
    view = replace(x, shape=(x.shape[0] * 2, 2048))
    append(chain.ops, Product(input_rows, _matrix("half", 2048, 2048), view, norm=_norm(2048), eps=1e-5))
    chain.multiply(x, "next", 2048, 4096)
    rounded = [op.bindings["x"] for op in chain.ops.ops if op.kernel == "quantize_rows"]
    assert rounded == [x, input_rows, x]
