"""Which ops of a small batch take over what products compute for adapters beside them."""

from py_engine.files.gguf_header import TensorInfo
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import low_rank_rows, post_norms
from py_engine.plan.adapters import Adapters, Pair
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Plan, Weight
from py_engine.plan.shared import SHORT_BATCH
from tests.support.devices import GPU

RANK, EPS = 5, 1e-5  # no whole vec4, so that further workgroups compute what adapters add


class Layers:
    """A list of a small batch whose matrices of Q4_0 have an adapter."""

    def __init__(self) -> None:
        self.plan = Plan(8, 64, 1000)
        adapters = Adapters([1.0])
        self.ops = Ops(self.plan, "test", SHORT_BATCH, GPU, True, adapters)
        self._pairs = adapters.pairs

    def matrix(self, names: dict[str, int], cols: int, a: Q = Q.F16) -> Weight:
        """A stack of matrices, by their rows. `a`: the type of the last one's A."""
        for number, (name, rows) in enumerate(names.items(), 1):
            type = a if number == len(names) else Q.F16
            infos = [
                TensorInfo(f"{name}.lora_{part}", shape, kind, 0, 0)
                for part, shape, kind in (("a", (cols, RANK), type), ("b", (RANK, rows), Q.F16))
            ]
            self._pairs[name] = [Pair(0, infos[0], infos[1], RANK, 1.0)]
        sources = tuple((name, 0, rows) for name, rows in names.items())
        return Weight("+".join(names), Q.Q4_0, sum(names.values()), cols, sources)

    def norm(self, name: str, cols: int) -> Weight:
        return Weight(name, Q.F32, 1, cols, ((name, 0, 1),))


def test_rows_that_queries_and_latents_share_are_no_residual_stream() -> None:
    """The next product normalises the queries' columns alone, so it stores no sum of the whole row."""
    layers = Layers()
    ops = layers.ops
    x = ops.rows("x", 2048)
    for _ in range(2):
        first = layers.matrix({"q_a": 768, "kv_a": 576}, 2048)
        low = ops.normed_stack("low", x, Projection([first], None, layers.norm("norm", 2048), EPS))
        second = Projection([layers.matrix({"q_b": 3072}, 768)], None, layers.norm("q_norm", 768), EPS)
        q = ops.normed_stack("q", low, second)
        ops.linear(q, layers.matrix({"out": 2048}, 3072), None, x)
    low_rank_rows.merge(ops)
    post_norms.merge(ops)
    parts = [op for op in ops.ops if op.kernel == "quantize_rows" and op.params.get("X_STRIDE")]
    assert len(parts) == 2
    assert not any(op.params.get("ADDED") for op in parts)
    assert sum(op.kernel == "add_scaled" and op.bindings["y"] is low for op in ops.ops) == 2


def test_a_product_waits_for_all_of_h() -> None:
    """A of another type has a dispatch after the product's; so B h has one after both."""
    for type, beside in ((Q.F16, True), (Q.F32, False)):
        layers = Layers()
        x = layers.ops.rows("x", 2048)
        stack = layers.matrix({"q": 2048, "k": 512}, 2048, type)
        layers.ops.normed_stack("qk", x, Projection([stack], None, layers.norm("norm", 2048), EPS))
        assert any(op.params.get("LOW_RANK") for op in layers.ops.ops) == beside
        assert any(op.kernel == "add_low_rank" for op in layers.ops.ops) != beside
