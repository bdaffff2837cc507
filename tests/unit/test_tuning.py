"""The choice of kernels, on a stand-in bench with given times and errors of each candidate."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from bench import encoder_shapes, shapes
from py_engine import planner
from py_engine.errors import SERVER_ERROR, WispError
from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import decode_tiles, kernels, matmul_tiles, small_batch_tiles, tiles
from py_engine.plan.kernels import Device
from py_engine.plan.lists import DECODE, SMALL_BATCH
from py_engine.plan.plan import Plan, Weight
from py_engine.tuning import cached_choices, candidates, tuner
from py_engine.tuning.cached_choices import Choices
from py_engine.tuning.candidates import MAX_SMALL_BATCHES, choices
from py_engine.tuning.workloads import (
    Attention,
    EncoderMatmul,
    MediaAttention,
    Prefill,
    SmallBatch,
    Workload,
    attention_of,
    matrices_of,
    prefill_of,
)
from tests.support.cpu_models import ONE_OF_EACH, header

GPU = Device(f16=True, subgroup=32, max_workgroup_storage=49152, dot8=True, matrix=16)


def plan_of(name: str = "llama/llama.Q4_0", device: Device = GPU) -> Plan:
    return planner.make_plan(header(name), device, planner.PlanOptions(64, 64, "f16"))


@dataclass
class FixedTrial:
    """A trial with given values and times."""

    values: list[float]
    time: Callable[[], float]
    closed: list["FixedTrial"]

    async def outputs(self) -> list[list[float]]:
        return [self.values]

    async def microseconds(self, best: float) -> float:
        return self.time()

    def close(self) -> None:
        self.closed.append(self)


class Bench:
    """A bench whose `time` and `values` depend on device and workload. A WispError given as values is raised."""

    def __init__(
        self,
        time: Callable[[Device, Workload], float],
        values: Callable[[Device, Workload], Any] = lambda *_: [1.0, 2.0],
    ):
        self.time, self.values = time, values
        self.closed: list[FixedTrial] = []
        self.trials = 0

    async def trial(self, device: Device, workload: Workload) -> FixedTrial:
        self.trials += 1
        plan, outputs = workload.planned(device)
        assert plan.lists["test"]
        assert outputs
        values = self.values(device, workload)
        if isinstance(values, WispError):
            raise values
        if values is None:
            await asyncio.sleep(60)
        return FixedTrial(values, lambda: self.time(device, workload), self.closed)


UNHURRIED: dict[str, Any] = {"seconds": 1000.0}  # a busy machine's own time decides nothing


def tune(bench: Bench, device: Device = GPU, **options: Any) -> tuple[Device, dict[str, dict[str, Any]]]:
    chosen, reports = asyncio.run(tuner.tune(plan_of(device=device), device, bench, **UNHURRIED | options))
    return chosen, {report["choice"]: report for report in reports}


def test_the_fastest_choice_is_used_in_the_plan() -> None:
    """The fastest here: matrices in floats, four rows per thread; prefill in f32; attention in tiles of 32."""

    def time(device: Device, workload: Workload) -> float:
        if isinstance(workload, Attention):
            return dict(device.tiles)[tiles.attention_key(workload.n_ctx, workload.head_dim, workload.group)][0]
        if device.tiles:
            in_bytes, along, *_ = device.tiles[0][1]
            return 10 + 5 * in_bytes + along
        return (5 if not device.f16 else 9) + device.int8

    bench = Bench(time)
    chosen, reports = tune(bench)
    assert (chosen.f16, chosen.matrix, chosen.subgroup) == (False, 0, 32)
    assert reports["prefill"]["chosen"] == "f32"
    for matrix in matrices_of(plan_of()):
        if matrix.name not in reports:
            continue
        report = reports[matrix.name]
        fastest = min(report["candidates"], key=lambda c: c["microseconds"])
        assert report["chosen"] == fastest["name"]
        assert not tiles.dot8(chosen, matrix.weight)
    again = plan_of(device=chosen)
    assert {op.params["DOT8"] for op in again.lists[DECODE] if op.kernel == "matvec"} == {0}
    assert {op.params["TS"] for op in again.lists[DECODE] if op.kernel == "attention_decode"} == {32}
    assert len(bench.closed) == bench.trials


def small_batches(device: Device) -> dict[str, dict[str, Any]]:
    """The params of each product of small batches, by its matrix."""
    ops = [op for op in plan_of(device=device).lists[SMALL_BATCH] if op.kernel == "matvec_small_batch"]
    return {small_batch_tiles.key(w): op.params for op in ops if isinstance(w := op.bindings["w"], Weight)}


def test_small_batches_have_tiles_of_their_own() -> None:
    """More rows per thread are the fastest here. The threads per row, and so the bits, are those of one token."""

    def time(device: Device, workload: Workload) -> float:
        if not isinstance(workload, SmallBatch):
            return 1.0
        return 10.0 / dict(device.tiles)[small_batch_tiles.key(workload.sample)][3]

    chosen, _ = tune(Bench(time))
    before, after = small_batches(GPU), small_batches(chosen)
    more = [key for key in before if after[key]["R"] > before[key]["R"]]
    assert len(more) == MAX_SMALL_BATCHES
    for key, params in after.items():
        assert params["TK"] == before[key]["TK"]
        assert params["TR"] * params["R"] % 4 == 0


def test_a_measured_small_batch_needs_the_threads_per_row_that_it_was_measured_with() -> None:
    weight = matrices_of(plan_of())[0].weight
    for in_bytes in (False, True):
        default = small_batch_tiles.matvec_small_batch(GPU, weight, in_bytes)
        tk, tr = default["TK"], default["TR"]
        for tile in ((int(in_bytes), 2 * tk, tr, 4, 0, 4, 0), (int(not in_bytes), tk, tr, 4, 0, 4, 0)):
            device = tiles.with_tile(GPU, small_batch_tiles.key(weight), tile)
            assert small_batch_tiles.matvec_small_batch(device, weight, in_bytes) == default


def test_alternatives_of_small_batches_fit() -> None:
    pairs, single = (Weight("w", type, 512, 4096, (("w", 0, 512),)) for type in (Q.Q4_K, Q.Q4_0))
    for weight, tile in (
        (pairs, (1, 8, 16, 1, 1, 8, 0)), (pairs, (1, 64, 4, 2, 0, 2, 1)), (pairs, (0, 16, 4, 2, 0, 4, 0)),
        (pairs, (1, 4, 64, 1, 0, 8, 0)), (single, (1, 32, 4, 4, 0, 4, 2)),
    ):  # fmt: skip
        found = small_batch_tiles.alternatives(GPU, weight, tile, rounds_x=False)
        assert {staged for *_, staged, _, _ in found} == ({0, 1} if tile[0] and tile[1] <= 32 else {0})
        assert len({tokens for *_, tokens, _ in found}) > 1
        for in_bytes, tk, tr, r, staged, tokens, ahead in found:
            assert tokens in (2, 4, 8)
            assert ahead <= (2 if weight is single and not staged else 1 if in_bytes and not staged else 0)
            assert (in_bytes, tk) == tile[:2]
            assert tr * r % 4 == 0
            assert 32 <= tk * tr <= GPU.max_threads
            assert 1 <= r <= (2 if weight is pairs and in_bytes else 4)


def test_a_small_gain_keeps_the_default() -> None:
    times = iter([10.0, 9.9] * 100)
    chosen, reports = tune(Bench(lambda *_: next(times)))
    assert chosen == replace(GPU, tiles=chosen.tiles)
    before, after = (plan_of(device=d).lists[DECODE] for d in (GPU, chosen))
    assert [op.params for op in before] == [op.params for op in after]
    assert all(r["chosen"] == r["candidates"][0]["name"] for r in reports.values())


@pytest.mark.parametrize("bad", [[float("nan"), 2.0], [1.0, 2.1], WispError("no such thing", "x", SERVER_ERROR)])
def test_choices_with_wrong_outputs_are_rejected(bad: Any) -> None:
    """The fastest candidates (subgroup matrices, matrices in bytes) are rejected if they compute wrong values."""

    def values(device: Device, workload: Workload) -> Any:
        return bad if device.dot8 or (device.matrix and isinstance(workload, Prefill)) else [1.0, 2.0]

    chosen, reports = tune(Bench(lambda device, _: 1 if device.dot8 or device.matrix else 100, values))
    assert not chosen.matrix
    assert not chosen.dot8
    for name, right in (("prefill", ["f16", "f32"]), ("activations", ["floats"])):
        report = reports[name]
        assert [c["name"] for c in report["candidates"] if "rejected" not in c] == right
        assert report["chosen"] == right[0]


def test_tuning_stays_within_its_time() -> None:
    """A candidate that does not compile in time is skipped, and the defaults stay."""
    bench = Bench(lambda *_: 1.0, lambda device, _: [1.0] if device == tuner.reference_device(device) else None)
    chosen, reports = tune(bench, seconds=0.05)
    assert chosen == GPU
    assert {r["why"] for r in reports.values()} == {"time ran out before every candidate was measured"}


def test_the_default_is_timed_again_before_it_is_replaced() -> None:
    """The first candidate runs while others compile, so it may look slow and is timed again."""
    seen: set[str] = set()

    def time(device: Device, workload: Workload) -> float:
        first = workload.name not in seen
        seen.add(workload.name)
        return 100 if first else 10

    _, reports = tune(Bench(time), forced={"dot8": True, "f16": True, "matrix": 16, "subgroup": 32})
    assert reports
    assert all(r["chosen"] == r["candidates"][0]["name"] for r in reports.values())


def test_forced_fields_stay() -> None:
    fast = Bench(lambda device, _: 1 + device.dot8 + device.f16 + device.subgroup)
    chosen, reports = tune(fast, forced={"dot8": True, "f16": True, "matrix": 16, "subgroup": 32})
    assert (chosen.dot8, chosen.f16, chosen.matrix, chosen.subgroup) == (True, True, 16, 32)
    assert all("floats" not in c["name"] for r in reports.values() for c in r["candidates"])
    assert tune(fast, forced={"matrix": 16})[0].matrix == 16


def test_cached_choices_hold_for_one_device_model_and_kernels(tmp_path: Path) -> None:
    plan, model, about = plan_of(), header("llama/llama.Q4_0"), {"vendor": "a", "browser": "b", "n_ctx": 64}
    key = cached_choices.key(about, model, GPU, [], "hash")
    assert key == cached_choices.key(dict(about), header("llama/llama.Q4_0"), GPU, [], "hash")
    others = [
        cached_choices.key(about | {"browser": "c"}, model, GPU, [], "hash"),
        cached_choices.key(about, header("llama/llama.Q8_0"), GPU, [], "hash"),
        cached_choices.key(about, model, replace(GPU, f16=False), [], "hash"),
        cached_choices.key(about, model, GPU, ["f16"], "hash"),
        cached_choices.key(about, model, GPU, [], "other"),
    ]
    assert len({key, *others}) == 6
    kernel = tmp_path / "a.wgsl"
    kernel.write_text("one")
    one = cached_choices.kernels_hash([kernel])
    kernel.write_text("two")
    assert cached_choices.kernels_hash([kernel]) != one
    assert cached_choices.kernels_hash() == cached_choices.kernels_hash()
    texts = {path.stem: path.read_text() for path in Path(kernels.__file__).parent.glob("*.py")}
    choosing = {*cached_choices.CHOOSING}
    assert {name for name, text in texts.items() if "device.tiles" in text} <= choosing <= texts.keys()
    found = Choices(*asyncio.run(tuner.tune(plan, GPU, Bench(lambda device, _: 9 - 2 * device.f16), **UNHURRIED)), 2.0)
    assert cached_choices.deserialize(GPU, cached_choices.serialize(found)) == found
    assert not found.unfinished
    cut = Choices(*asyncio.run(tuner.tune(plan, GPU, Bench(lambda *_: 1.0), seconds=0.0)), 0.0)
    assert cached_choices.deserialize(GPU, cached_choices.serialize(cut)).unfinished


@pytest.mark.parametrize("name", [*ONE_OF_EACH, "llama/llama-scales.NVFP4"])
def test_every_architecture_s_candidates_can_be_made(name: str) -> None:
    """The candidates' kernels expand, have all their bindings, and differ from each other."""
    plan = plan_of(name)
    assert plan.generates == bool(matrices_of(plan))
    for make in choices(plan, GPU, []):
        choice = make(GPU)
        if choice is None or len(choice.candidates) < 2:
            continue
        texts = set()
        for candidate in choice.candidates:
            small, outputs = choice.workload.planned(candidate.device)
            ops = small.lists["test"]
            shaders = [kernels.expand(op.kernel, op.params, candidate.device) for op in ops]
            texts.add((shaders[0].code, repr(ops[-1].params), repr(ops[-1].grid)))
            for op, shader in zip(ops, shaders, strict=True):
                planes = {
                    n: list(b.layout.planes) for n, b in op.bindings.items() if n == "w" and isinstance(b, Weight)
                }
                bound = {p for n in op.bindings for p in planes.get(n, [n])}
                assert bound == set(shader.bindings) - {"p"}
                shader.pack(op.consts)
            assert all(b.name in small.buffers for b in outputs)
        assert len(texts) == len(choice.candidates)
    attends = [op for op in plan.lists.get(DECODE, []) if op.kernel == "attention_decode"]
    assert (attention_of(plan, GPU) is not None) == bool(attends)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gemma-3-1b", "qwen3-moe"])
@pytest.mark.parametrize("n_ctx", [512, 4096])
def test_decode_attention_is_measured_with_all_heads_that_share_keys(name: str, n_ctx: int) -> None:
    """The model then gets what was measured, also where several workgroups share a key head in short contexts."""
    device = replace(GPU, max_binding=1 << 31, max_buffer=1 << 31)
    shape, options = shapes.SHAPES[name], planner.PlanOptions(n_ctx, 256, "f16")
    plan = planner.make_plan(shapes.header(shape, shapes.MIX), device, options)
    workload = attention_of(plan, device)
    assert workload is not None
    assert (workload.n_head_kv, workload.group) == (shape.n_head_kv, shape.n_head // shape.n_head_kv)
    measured = tiles.with_tile(device, tiles.attention_key(n_ctx, shape.head_dim, workload.group), (32, 2, 16))
    again = planner.make_plan(shapes.header(shape, shapes.MIX), measured, options)
    assert {op.params["TS"] for op in again.lists[DECODE] if op.kernel.startswith("attention_decode")} == {32}


def test_a_device_that_is_faster_without_tiles_of_long_contexts_has_none() -> None:
    def time(device: Device, workload: Workload) -> float:
        return 1.0 if decode_tiles.NONE in device.tiles else 2.0

    def kernels_of(device: Device) -> set[str]:
        options = planner.PlanOptions(4096, 256, "f16")
        return {op.kernel for op in planner.make_plan(model, device, options).lists[DECODE]}

    device = replace(GPU, max_binding=1 << 31, max_buffer=1 << 31)
    model = shapes.header(shapes.SHAPES["llama-3.2-1b"], shapes.MIX)
    assert "attention_decode_tiles" in kernels_of(device)
    plan = planner.make_plan(model, device, planner.PlanOptions(4096, 256, "f16"))
    chosen, _ = asyncio.run(tuner.tune(plan, device, Bench(time), **UNHURRIED))
    assert decode_tiles.NONE in chosen.tiles
    assert "attention_decode_tiles" not in kernels_of(chosen)


@pytest.mark.parametrize("name", ["gemma-3-4b", "qwen2.5-vl-3b"])
def test_encoders_get_the_fastest_tiles_of_many_rows(name: str) -> None:
    """Of every product of their blocks, and of attention; where a product gates, a subgroup has both of its parts."""
    product, attention = (128, 128, 32, 2, 4, 2), (64, 32, 32)

    def time(device: Device, workload: Workload) -> float:
        return 10 - 5 * (
            isinstance(workload, EncoderMatmul | MediaAttention) and device.tiles[-1][1] in (product, attention)
        )

    options, device = planner.PlanOptions(1, 1, "f16"), replace(GPU, max_binding=1 << 31, max_buffer=1 << 31)
    model = encoder_shapes.header(encoder_shapes.SHAPES[name])
    plan = planner.make_plan(model, device, options)
    chosen, reports = asyncio.run(tuner.tune(plan, device, Bench(time), **UNHURRIED))
    assert [report["choice"].split()[0] for report in reports] == ["prefill", *["rows"] * 4, "attention"]
    ops = [op for ops in planner.make_plan(model, chosen, options).lists.values() for op in ops]
    blocks = [op for op in ops if op.kernel == "matmul_matrix" and op.bindings["w"].name.startswith("v.blk")]
    assert {tuple(op.params[name] for name in matmul_tiles.MATMUL) for op in blocks} == {product}
    attentions = [op for op in ops if op.kernel == "attention_matrix"]
    assert {tuple(op.params[name] for name in tiles.MEDIA_ATTENTION) for op in attentions} == {attention}
    for op in blocks:
        tile = {name: int(op.params[name]) for name in (*matmul_tiles.MATMUL, "SIDE")}
        assert op.grid[0] == -(-int(op.consts["rows"]) // tile["TN"])
        assert op.params["EPILOGUE"] != "gated" or tile["TN"] // tile["SN"] >= 2 * tile["SIDE"]


def test_encoders_are_not_measured_with_rows_in_bytes() -> None:
    """Their lists do not round: what is fastest in bytes says nothing about them."""
    device = replace(GPU, max_binding=1 << 31, max_buffer=1 << 31, matrix=0)
    model = encoder_shapes.header(encoder_shapes.SHAPES["gemma-3-4b"])
    workload = prefill_of(planner.make_plan(model, device, planner.PlanOptions(1, 1, "f16")), device)
    assert workload is not None
    of_integers = replace(workload, sample=replace(workload.sample, type=Q.Q8_0))
    found = candidates._prefill(device, of_integers, frozenset()).candidates
    assert [candidate.name for candidate in found] == ["f16", "f32"]
    plan, _ = of_integers.planned(device)
    assert [op.kernel for op in plan.lists["test"] if "QUANT" in op.params] == ["matmul"]
