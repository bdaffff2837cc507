"""Which ops of a small batch take over what products compute for adapters beside them."""

from py_engine.files.gguf_header import TensorInfo
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import low_rank_rows, post_norms
from py_engine.plan.adapters import Adapters, Pair
from py_engine.plan.cache import make_cache, page_group
from py_engine.plan.kernels import expand
from py_engine.plan.low_rank_entries import Entry, equal_params, runs_of
from py_engine.plan.ops import Ops, Projection
from py_engine.plan.plan import Plan, Weight
from py_engine.plan.rope import Pairs, Rope
from py_engine.plan.shared_constants import SHORT_BATCH
from tests.support.devices import GPU

RANK, EPS = 5, 1e-5  # no whole vec4, so that further workgroups compute what adapters add


class Layers:
    """A list of a small batch whose matrices of Q4_0 have an adapter."""

    def __init__(self, rank: int = RANK) -> None:
        self._rank = rank
        self.plan = Plan(8, 64, 1000)
        adapters = Adapters([1.0])
        self.ops = Ops(self.plan, "test", SHORT_BATCH, GPU, True, adapters)
        self._pairs = adapters.pairs

    def matrix(self, names: dict[str, int], cols: int, a: Q = Q.F16, type: Q = Q.Q4_0) -> Weight:
        """A stack of matrices, by their rows. `a`: the type of the last one's A."""
        for number, (name, rows) in enumerate(names.items(), 1):
            own = a if number == len(names) else Q.F16
            infos = [
                TensorInfo(f"{name}.lora_{part}", shape, kind, 0, 0)
                for part, shape, kind in (("a", (cols, self._rank), own), ("b", (self._rank, rows), Q.F16))
            ]
            self._pairs[name] = [Pair(0, infos[0], infos[1], self._rank, 1.0)]
        sources = tuple((name, 0, rows) for name, rows in names.items())
        return Weight("+".join(names), type, sum(names.values()), cols, sources)

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


def test_products_that_follow_each_other_do_not_add_to_their_own_rows_only() -> None:
    """Two matrices that are no one dispatch: each would add to its rows, and the second one's would get nothing."""
    layers = Layers(rank=8)
    x = layers.ops.rows("x", 1024)
    stack = [layers.matrix({"q": 3072}, 1024, type=Q.Q8_0), layers.matrix({"v": 1024}, 1024, type=Q.Q5_K)]
    layers.ops.normed_stack("qv", x, Projection(stack, None, layers.norm("norm", 1024), EPS))
    products = [op for op in layers.ops.ops if op.kernel == "matvec_small_batch"]
    assert len(products) == 2
    assert not any(op.params.get("LOW_RANK_OWN_ROWS") for op in products)
    assert any(op.kernel in ("add_scaled", "add_low_rank") for op in layers.ops.ops)


def test_gate_and_up_of_two_types_are_activated_after_their_product() -> None:
    """A gated product pairs the rows of one matrix."""
    for types, rows, fused in (((Q.Q4_K, Q.Q4_K), 2048, True), ((Q.Q4_K, Q.Q6_K), 8192, False)):
        layers = Layers(rank=8)
        x, names = layers.ops.rows("x", 4096), ("gate", "up")
        if fused:
            stack = [layers.matrix(dict.fromkeys(names, rows), 4096, type=types[0])]
        else:
            stack = [layers.matrix({name: rows}, 4096, type=type) for name, type in zip(names, types, strict=True)]
        layers.ops.gated(x, Projection(stack, None, layers.norm("norm", 4096), EPS), "silu")
        low_rank_rows.merge(layers.ops)
        (product,) = (op for op in layers.ops.ops if op.kernel == "matvec_small_batch")
        assert product.params["LOW_RANK_OWN_ROWS"]
        assert (product.params["EPILOGUE"] == "gated") == fused
        assert any(op.kernel == "activate" for op in layers.ops.ops) != fused


def test_workgroups_of_two_types_have_rows_that_rope_rotates() -> None:
    """Four at a time."""
    for cols, rows in ((4096, (5120, 1024)), (3072, (4096, 1024))):
        layers = Layers(rank=8)
        x, ops = layers.ops.rows("x", cols), layers.ops
        stack = [
            layers.matrix({"q": rows[0] - rows[1], "k": rows[1]}, cols, type=Q.Q4_K),
            layers.matrix({"v": rows[1]}, cols, type=Q.Q6_K),
        ]
        cache = make_cache(layers.plan, 0, rows[1], "f16", page_group(layers.plan, 0))
        heads = (rows[0] - rows[1]) // 128, rows[1] // 128, 128
        rope = Rope(128, Pairs.NEIGHBOURS, ops.buffer("freqs", (64,), "u32", "state"))
        ops.qkv(x, Projection(stack, None, layers.norm("norm", cols), EPS), cache, heads, rope)
        low_rank_rows.merge(ops)
        (product,) = (op for op in ops.ops if op.kernel == "matvec_small_batch")
        assert product.params["LOW_RANK_OWN_ROWS"]
        assert product.params["EPILOGUE"] == "qkv", cols
        assert expand(product.kernel, product.params, GPU).code


def test_adapters_whose_first_matrices_differ_in_type_are_not_equal() -> None:
    """h has the columns of A in F16 first, so those of adapter 0 may follow those of adapter 1."""
    infos = {
        (adapter, part): TensorInfo(f"{adapter}.{part}", (8, 8), Q.F32 if (adapter, part) == (1, "a") else Q.F16, 0, 0)
        for adapter in (0, 1)
        for part in "ab"
    }
    pairs = [Pair(adapter, infos[adapter, "a"], infos[adapter, "b"], 8, 1.0) for adapter in (0, 1)]
    for columns, equal in (((0, 8), True), ((8, 0), False)):
        runs = runs_of([Entry(pair, 0, 0, 64, h) for pair, h in zip(pairs, columns, strict=True)])
        assert (equal_params(runs) is not None) == equal
