"""Lists of prompts have tiles for usual batches; those of short and long batches differ from them in tiles alone."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest

from bench import shapes
from py_engine import planner
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import matmul_tiles, tiles
from py_engine.plan.batch_sizes import FEWER_TOKENS, USUAL_TOKENS, lists_for, splits_attention
from py_engine.plan.kernels import Device
from py_engine.plan.lists import (
    DECODE,
    LAST_LOGITS,
    MEDIA,
    PACKED,
    PREFILL,
    SIZES,
    SPLIT_ATTENTION,
    long,
    medium,
    short,
)
from py_engine.plan.lists import split_attention as split_attention_list
from py_engine.plan.plan import Buffer, Op, PerToken, Plan, Weight

SHORT_TOKENS, MEDIUM_TOKENS = (n for _, n in FEWER_TOKENS)
GPU = Device(f16=True, subgroup=32, matrix=16, max_workgroup_storage=49152, max_threads=1024, dot8=True)


def plan_of(batch: int, device: Device = GPU) -> Plan:
    header = shapes.header(shapes.SHAPES["qwen3-0.6b"], "Q4_K_M")
    return planner.make_plan(header, device, planner.PlanOptions(4096, batch, "f16"))


def of_one_size(plan: Plan) -> dict[str, list[Op]]:
    """The lists for batches of usual size."""
    return {name: ops for name, ops in plan.lists.items() if not name.startswith(SIZES)}


@pytest.mark.parametrize(("batch", "named"), [*((n, named) for named, n in FEWER_TOKENS), (USUAL_TOKENS, str)])
def test_a_smaller_batch_has_the_tiles_of_a_plan_for_such_batches(batch: int, named: Callable[[str], str]) -> None:
    plan, smaller = plan_of(2048), plan_of(batch)
    products = [(op.kernel, op.params, op.grid) for op in plan.lists[named(PREFILL)] if op.kernel == "matmul_matrix"]
    wanted = [(op.kernel, op.params, op.grid) for op in smaller.lists[PREFILL] if op.kernel == "matmul_matrix"]
    assert products == wanted


@pytest.mark.parametrize("name", [PREFILL, PACKED])
@pytest.mark.parametrize("named", [short, medium, long])
def test_other_sizes_have_other_tiles_on_the_same_buffers(name: str, named: Callable[[str], str]) -> None:
    plan = plan_of(2048)
    changed = 0
    for usual, other in zip(plan.lists[name], plan.lists[named(name)], strict=True):
        changed += usual != other
        assert usual == other or usual.kernel in ("matmul_matrix", "attention_matrix")
        assert usual.bindings == other.bindings
        if isinstance(weight := other.bindings.get("w"), Weight) and other.kernel == "matmul_matrix":
            assert other.params["TN"] * other.grid[0] >= weight.rows  # type: ignore[operator]
    assert changed >= 28  # a product of each layer, at least
    assert named(name) in plan.lazy
    unsplit = {name: ops for name, ops in plan.lists.items() if not name.startswith(SPLIT_ATTENTION)}
    assert replace(plan, lists=unsplit).slots()[1] == replace(plan, lists=of_one_size(plan)).slots()[1]


@pytest.mark.parametrize(
    ("shape", "rows"),
    [("qwen3-0.6b", (64, 64, 64, 128)), ("llama-3.1-8b", (64, 64, 128, 128)), ("gemma-3-1b", (64,) * 4)],
)
def test_attention_has_small_tiles_where_large_ones_leave_cores_idle(shape: str, rows: tuple[int, ...]) -> None:
    """Rows of tiles in batches of up to 64, 256, 512 and 2,048 tokens. 512 of the 8B have 128 large tiles."""
    header = shapes.header(replace(shapes.SHAPES[shape], n_layer=1), "Q4_K_M")
    plan = planner.make_plan(header, GPU, planner.PlanOptions(4096, 2048, "f16"))
    found = []
    for n in (SHORT_TOKENS, MEDIUM_TOKENS, USUAL_TOKENS, 2048):
        (name,) = lists_for(plan, [PREFILL], n)
        (op,) = (op for op in plan.lists[name] if op.kernel == "attention_matrix")
        assert op.grid[1] == PerToken(int(op.params["TQ"]))
        assert op.params["TQ"] == int(op.params["ROWS"]) // int(op.params["G"])
        found.append(op.params["ROWS"])
    assert tuple(found) == rows


@pytest.mark.parametrize(("group", "rows"), [(1, 64), (64, 64), (65, 128)])
def test_a_small_tile_of_attention_has_all_heads_of_a_token(group: int, rows: int) -> None:
    assert tiles.attention_rows(128, group, SHORT_TOKENS, 1) == rows


@pytest.mark.parametrize("n", [1, SHORT_TOKENS, SHORT_TOKENS + 1, MEDIUM_TOKENS, USUAL_TOKENS, 2048])
@pytest.mark.parametrize("batch", [65, 512, 2048])
@pytest.mark.parametrize("storage", [32768, 49152])
def test_a_mixture_is_sorted_into_the_tiles_of_its_products(storage: int, batch: int, n: int) -> None:
    device = replace(GPU, max_workgroup_storage=storage)
    header = shapes.header(replace(shapes.SHAPES["qwen3-moe"], n_layer=1), "Q4_K_M")
    plan = planner.make_plan(header, device, planner.PlanOptions(4096, batch, "f16"))
    ops = plan.lists[lists_for(plan, [PREFILL], min(n, batch))[0]]
    (sorting,) = (op for op in ops if op.kernel == "group_experts")
    products = [op for op in ops if op.params.get("GROUPED")]
    assert products
    for op in products:
        count, tiles = op.grid[1], sorting.bindings["tiles"]
        assert isinstance(count, PerToken)
        assert isinstance(tiles, Buffer)
        assert op.params["TM"] == sorting.params["TM"] == 8 * count.tile
        assert -(-8 * min(n, batch) // op.params["TM"]) + 127 <= count.count(min(n, batch)) <= tiles.shape[0]


@pytest.mark.parametrize("sized", [short, medium])
def test_attention_late_in_a_context_has_more_workgroups(sized: Callable[[str], str]) -> None:
    plan, named = plan_of(2048), split_attention_list(sized(PREFILL))
    usual, ops = plan.lists[sized(PREFILL)], plan.lists[named]
    assert [op.kernel for op in ops if op.kernel.startswith("attention")] == [
        "attention_matrix",
        "attention_merge",
    ] * 28
    assert [op for op in ops if not op.kernel.startswith("attention")] == [
        op for op in usual if op.kernel != "attention_matrix"
    ]
    assert named in plan.lazy
    first = next(op for op in ops if op.kernel == "attention_matrix")
    workgroups = int(first.grid[0]) * (SHORT_TOKENS // int(first.params["TQ"])) * int(first.grid[2])  # type: ignore[arg-type]
    assert workgroups >= 128 or sized == medium


def test_split_attention_takes_memory_for_its_sums_once() -> None:
    plan = plan_of(2048)
    slots, sizes = plan.slots()
    (sums,) = (b for b in plan.buffers.values() if b.name.startswith("sums."))
    more = sum(sizes) - sum(replace(plan, lists=of_one_size(plan)).slots()[1])
    assert 0 < more <= sums.nbytes
    assert sums.nbytes == 4 * 1024 * 16 * (128 + 2)
    for op in plan.lists[split_attention_list(short(PREFILL))]:
        bound = [b.name for b in op.bindings.values() if isinstance(b, Buffer) and b.pool == "activations"]
        assert len({slots[name] for name in bound}) == len(bound)


@pytest.mark.parametrize(
    ("n", "end", "splits"), [(64, 1023, False), (64, 1024, True), (256, 4096, True), (257, 4096, False)]
)
def test_attention_is_split_late_in_a_context(n: int, end: int, splits: bool) -> None:
    plan = plan_of(2048)
    assert splits_attention(plan, n, end) == splits
    found = lists_for(plan, [PREFILL, LAST_LOGITS], n, split_attention=True)
    assert found[0].startswith(SPLIT_ATTENTION) == (n <= MEDIUM_TOKENS)
    assert found[1] == LAST_LOGITS


def test_the_list_follows_the_number_of_tokens() -> None:
    plan = plan_of(2048)
    for n, expected in {
        1: short(PREFILL),
        SHORT_TOKENS: short(PREFILL),
        SHORT_TOKENS + 1: medium(PREFILL),
        MEDIUM_TOKENS: medium(PREFILL),
        MEDIUM_TOKENS + 1: PREFILL,
        USUAL_TOKENS: PREFILL,
    }.items():
        assert lists_for(plan, [PREFILL, LAST_LOGITS], n) == [expected, LAST_LOGITS]
    assert lists_for(plan, [PREFILL, LAST_LOGITS], USUAL_TOKENS + 1) == [long(PREFILL), LAST_LOGITS]
    assert lists_for(plan, [MEDIA, DECODE], 2048) == [MEDIA, DECODE]


@pytest.mark.parametrize(("batch", "device"), [(SHORT_TOKENS, GPU), (2048, replace(GPU, matrix=0, software=True))])
def test_there_are_no_others_where_tiles_do_not_differ(batch: int, device: Device) -> None:
    plan = plan_of(batch, device)
    assert of_one_size(plan) == plan.lists


@pytest.mark.parametrize("n", [SHORT_TOKENS, MEDIUM_TOKENS, USUAL_TOKENS])
def test_without_subgroup_matrices_all_batches_but_the_largest_have_split_attention(n: int) -> None:
    plan = plan_of(2048, replace(GPU, matrix=0))
    others = {split_attention_list(name) for name in (PREFILL, short(PREFILL), medium(PREFILL))}
    assert others <= plan.lists.keys()
    assert splits_attention(plan, n, 1024)
    assert not splits_attention(plan, n, 1023)
    name, _ = lists_for(plan, [PREFILL, LAST_LOGITS], n, split_attention=True)
    assert name in others
    assert lists_for(plan, [PREFILL], n) == [name.removeprefix(SPLIT_ATTENTION)]
    assert not splits_attention(plan, USUAL_TOKENS + 1, 4096)
    (op, *_) = (op for op in plan.lists[name] if op.kernel == "attention")
    assert n * int(op.grid[2]) == 1024  # type: ignore[arg-type]


@pytest.mark.parametrize(("batch", "made"), [(SHORT_TOKENS, False), (MEDIUM_TOKENS, False), (USUAL_TOKENS, True)])
def test_the_list_itself_has_split_attention_only_for_batches_that_run_it(batch: int, made: bool) -> None:
    assert (split_attention_list(PREFILL) in plan_of(batch, replace(GPU, matrix=0)).lists) == made


@pytest.mark.parametrize(("side", "subgroup", "storage"), [(8, 32, 32768), (16, 32, 49152), (16, 64, 65536)])
@pytest.mark.parametrize("epilogue", ["store", "add", "gated"])
def test_every_subgroup_has_whole_matrices_of_a_tile(side: int, subgroup: int, storage: int, epilogue: str) -> None:
    """Where the epilogue gates, of the gate and of the up. The tile fits the device, and its loads the threads."""
    device = replace(GPU, matrix=side, subgroup=subgroup, max_workgroup_storage=storage)
    for batch, type, rows in product((64, 256, 512, 2048), (Q.Q4_K, Q.Q6_K, Q.F16), (64, 576, 1024, 6144, 8192, 28672)):
        weight = Weight("w", type, rows, 1024, (("w", 0, rows),))
        kernel, tile = matmul_tiles.product(device, batch, weight, epilogue)
        assert kernel == "matmul_matrix"
        assert tile["TM"] % (tile["SM"] * side) == tile["TN"] % (tile["SN"] * side) == 0
        assert tile["TN"] // tile["SN"] >= side * (2 if epilogue == "gated" else 1)
        used = 2 * (tile["TM"] + tile["TN"]) * (tile["DEPTH"] + 8) + 4 * tile["SM"] * tile["SN"] * side**2
        assert used <= device.max_workgroup_storage
        threads = tile["SM"] * tile["SN"] * subgroup
        assert threads <= device.max_threads
        assert tile["TM"] * tile["DEPTH"] // 4 % threads == tile["TN"] * tile["DEPTH"] // 8 % threads == 0
