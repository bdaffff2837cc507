"""Bytes and operations of dispatches against counts by hand, and the lower bound of their time on a device."""

from pathlib import Path

import pytest

from py_engine.files.gguf_header import Header, parse
from py_engine.plan import decode_tiles
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE, GREEDY, PREFILL, SMALL_BATCH
from py_engine.plan.plan import Buffer, Plan, Weight
from py_engine.plan.traffic import ReadLimits, Traffic, floor_ns, of_list, of_step, profile, step_floor_ns
from py_engine.planner import PlanOptions, make_plan
from tools.goldens import GOLDEN, golden_models

MODELS = [p for p in golden_models() if p.name.endswith(".F16.gguf")]
DEVICE = Device(f16=True, subgroup=32, dot8=True, max_workgroup_storage=32768)
RATES = [(1000, 10.0), (2000, 12.0), (10_000, 20.0)]


def header_of(path: Path) -> Header:
    data = path.read_bytes()
    return parse(data, len(data))


def plan_of(path: Path, kv_type: str = "f16", n_ctx: int = 256) -> Plan:
    return make_plan(header_of(path), DEVICE, PlanOptions(n_ctx, 64, kv_type))


@pytest.fixture(scope="module")
def llama() -> Plan:
    return plan_of(GOLDEN / "llama" / "llama.Q4_0.gguf")


def test_matrix_and_vector(llama: Plan) -> None:
    """The down projection reads its planes, the hidden layer's row and the row of x that it adds to."""
    added = [(i, o) for i, o in enumerate(llama.lists[DECODE]) if o.params.get("EPILOGUE") == "add"]
    at, op = next((i, o) for i, o in added if "x" in o.bindings)  # else it reads the splits of attention
    weight = op.bindings["w"]
    assert isinstance(weight, Weight)
    x = op.bindings["x"]
    found = of_list(llama, DECODE, DEVICE, 1, 100)[at]
    blocks = weight.rows * weight.cols // 32
    assert found.read - 18 * blocks - 16 - x.nbytes == 4 * weight.rows == found.written  # 16: the state
    assert found.flops == 2 * weight.rows * weight.cols


def test_attention_reads_what_is_seen(llama: Plan) -> None:
    ops = llama.lists[DECODE]
    at = next(i for i, op in enumerate(ops) if op.kernel == "attention_decode")
    k = ops[at].bindings["k_cache"]
    assert isinstance(k, Buffer)
    row = 2 * k.nbytes // k.shape[0]
    less, more = (of_list(llama, DECODE, DEVICE, 1, position)[at] for position in (63, 127))
    assert more.read - less.read == 64 * row
    assert more.flops == 2 * less.flops
    assert more.written == 2 * less.written, "two splits of 64 positions"


@pytest.mark.parametrize("name", [DECODE, SMALL_BATCH])
def test_one_kernel_has_a_context(name: str) -> None:
    """Where both are dispatched, one leaves the context out, and moves nothing. A profile has an entry for each."""
    plan = make_plan(header_of(GOLDEN / "llama" / "llama.Q4_0.gguf"), DEVICE, PlanOptions(2048, 64, "f16"))
    for position, reader in ((400, "attention_decode"), (511, "attention_decode"), (1000, "attention_decode_tiles")):
        step = of_step(plan, [name], DEVICE, 1, position)
        assert len(step) == plan.dispatches([name], position + 1)
        moved = {op.kernel for op, traffic in step if "attention_decode" in op.kernel and traffic.bytes}
        assert moved == {reader}


def test_attention_stores_the_newest_position() -> None:
    """Where it also normalises and rotates, it reads the other positions, and writes their number's sums."""
    plan = plan_of(GOLDEN / "qwen" / "qwen3.F16.gguf")
    ops = plan.lists[DECODE]
    at = next(i for i, op in enumerate(ops) if op.kernel == "attention_decode")
    k, x, norm, parts = (ops[at].bindings[name] for name in ("k_cache", "x", "norm", "parts"))
    assert isinstance(k, Buffer)
    row = 2 * k.nbytes // k.shape[0]
    found = of_list(plan, DECODE, DEVICE, 1, 63)[at]
    turns = ops[at].bindings["rope_freqs"].nbytes
    assert found.read == 63 * row + x.nbytes + norm.nbytes + turns + 16  # 16: the state
    assert found.written == row + parts.nbytes // int(ops[at].params["SPLIT"])


def test_prefill_moves_matrices_once_and_rows_by_tokens(llama: Plan) -> None:
    ops = llama.lists[PREFILL]
    at = next(i for i, op in enumerate(ops) if op.kernel.startswith("matmul"))
    weight = ops[at].bindings["w"]
    assert isinstance(weight, Weight)
    one, all = (of_list(llama, PREFILL, DEVICE, n, 0)[at] for n in (1, 64))
    assert all.written == 64 * one.written == 64 * 4 * weight.rows
    x = sum(ops[at].bindings[name].nbytes for name in ("x", "xq", "xq_scale") if name in ops[at].bindings)
    assert all.read - one.read == 63 * x // 64
    assert all.flops == 64 * one.flops


def test_compressed_keys_are_read_beside_those_of_the_window() -> None:
    """Heads of 40 values, a window of 9. At position 130, there are 32 keys of 4 positions, or one of 128."""
    plan = plan_of(GOLDEN / "latent" / "deepseek4.F16.gguf")
    found = [
        (op, moved)
        for op, moved in zip(plan.lists[DECODE], of_list(plan, DECODE, DEVICE, 1, 130), strict=True)
        if op.kernel == "compressed_attention"
    ]
    heads, size = 4, 40
    for (op, moved), keys in zip(found, (9, 9 + 32, 9 + 1, 9 + 32), strict=True):
        assert moved.flops == 4 * heads * size * keys
        places = {0: 0, 4: 10, 128: 1}[int(op.params["RATIO"])]  # f16 values of a position in the cache
        others = [b for name, b in op.bindings.items() if name in ("q", "sinks", "rope_freqs")]
        rest = sum(b.plane_bytes("w_qs") if isinstance(b, Weight) else b.nbytes for b in others)
        assert moved.read == 16 + 2 * (9 * size + 131 * places) + rest


def test_window_and_cache_in_bytes() -> None:
    """Rows beyond the window are not read; a q8_0 row is nine eighths of its numbers."""
    header = header_of(GOLDEN / "gemma" / "gemma3.F16.gguf")
    plan = plan_of(GOLDEN / "gemma" / "gemma3.F16.gguf", "q8_0")
    window = header.metadata["gemma3.attention.sliding_window"]
    ops = plan.lists[DECODE]
    at = next(i for i, op in enumerate(ops) if op.kernel == "attention_decode" and op.params["WINDOW"])
    early, late = (of_list(plan, DECODE, DEVICE, 1, position)[at] for position in (window + 5, window + 50))
    assert early.read == late.read
    cache = ops[at].bindings["k_cache"]
    assert isinstance(cache, Buffer)
    cols = cache.shape[1] * 4 * 8 // 9
    q = ops[at].bindings["q"].nbytes
    own = 2 * cols * 4  # the token's own key and value, not in the cache yet
    assert late.read == 2 * window * cols * 9 // 8 + own + q + 16
    store = next(i for i, op in enumerate(plan.lists[SMALL_BATCH]) if op.kernel == "kv_quantize")
    for name, n, i in ((DECODE, 1, at + 1), (SMALL_BATCH, 3, store)):
        moved = of_list(plan, name, DEVICE, n, 9)[i]
        y = plan.lists[name][i].bindings.get("y", Buffer("none", (0,)))
        assert moved.written == n * 2 * cols * 9 // 8 + y.nbytes


@pytest.mark.parametrize("path", MODELS, ids=lambda p: p.stem)
def test_every_architecture_reads_its_weights(path: Path) -> None:
    """A token reads every matrix, except that it reads one row of the embeddings and only its experts' matrices.

    A diffusion model's DECODE has no layers. An encoder-decoder model's has the decoder's, and its PREFILL the others.
    """
    plan = plan_of(path, "f32")
    for name, n in ((DECODE, 1), (GREEDY, 1), (PREFILL, 40)):
        if name not in plan.lists or (name == DECODE and plan.diffusion is not None):
            continue
        moved = of_list(plan, name, DEVICE, n, 0)
        assert all(t.read > 0 and t.written > 0 for t in moved)
        whole = sum(moved, Traffic())
        if plan.encodes_prompts and name != GREEDY:
            whole += sum(of_list(plan, PREFILL if name == DECODE else DECODE, DEVICE, n, 0), Traffic())
        most = sum(w.nbytes for w in plan.weights.values())
        experts = any(op.kernel == "experts" for op in plan.lists[name])
        head = max(w.nbytes for w in plan.weights.values())
        assert whole.flops > 0 or name == GREEDY
        assert name == GREEDY or whole.read > (0.3 if experts else 1) * (most - 2 * head)


def test_floors() -> None:
    assert [floor_ns(RATES, size) for size in (0, 1000, 1500, 6000, 20_000)] == [10, 10, 11, 16, 40]
    assert step_floor_ns(RATES, 10_000, 5) == 60


def test_profile_has_a_floor_for_each_dispatch_and_for_all(llama: Plan) -> None:
    ops = of_step(llama, (DECODE, GREEDY), DEVICE, 1, 7)
    entries = profile(ops, ReadLimits(RATES), [30.0] * len(ops), 999.0)
    *each, step = entries
    assert step["kernel"] == "step"
    assert step["ns"] == 999
    assert step["bytes"] == sum(e["bytes"] for e in each)
    assert all(e["floor_ns"] == floor_ns(RATES, e["bytes"]) for e in each)
    assert step["floor_ns"] == step_floor_ns(RATES, step["bytes"], len(each))


@pytest.mark.parametrize(("name", "n"), [(DECODE, 1), (SMALL_BATCH, 8)])
def test_a_step_has_all_that_is_dispatched_in_its_context(name: str, n: int) -> None:
    """An op that leaves its tokens to the kernel of long contexts is dispatched, and moves nothing."""
    plan = plan_of(GOLDEN / "llama" / "llama.Q4_0.gguf", n_ctx=1024)
    for position in (decode_tiles.ABOVE - n, decode_tiles.ABOVE, decode_tiles.ABOVE + 200):
        ops = of_step(plan, [name], DEVICE, n, position)
        assert len(ops) == plan.dispatches([name], position + n)
        moving = {op.kernel for op, moved in ops if op.kernel.startswith("attention_decode") and moved.bytes}
        long = position >= decode_tiles.ABOVE
        assert moving == {"attention_decode_tiles" if long else "attention_decode"}
