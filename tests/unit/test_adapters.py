"""LoRA adapters and control vectors on both CPU engines: against llama.cpp's goldens, in batches, in the caches."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from py_engine import planner
from py_engine.cpu.executor import Cpu
from py_engine.cpu.runner import CpuRunner
from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.generate.answer import AnswerLimits, GenerationRequest, GenerationStats
from py_engine.options import AdapterOptions
from py_engine.plan.kernels import Device
from py_engine.plan.lists import ADAPTED, DECODE, LAST_LOGITS, PREFILL, SMALL_BATCH, adapted, plain
from py_engine.plan.sampling import Sampling
from tests.golden.make import reference_gemma3n
from tests.golden.make.adapters import write_adapter, write_control_vector
from tests.golden.make.reference import Reference
from tests.support import cpu_models, wasm_engines
from tests.support.cpu_models import GOLDEN
from tests.support.golden_adapters import LLAMA, MIXTURE, files
from tests.support.model_files import ModelFiles
from tests.support.tolerances import assert_close, same_ids

CASES = sorted(path.stem for path in (GOLDEN / "lora").glob("*.json"))
GREEDY = Sampling(temperature=0)
BASE = GOLDEN / "llama" / "llama.Q4_K_M.gguf"
OFF, A, B, C = (0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)
Load = Callable[[Path, list[Path]], Awaitable[Engine]]


async def on_numpy(path: Path, adapters: list[Path]) -> Engine:
    cpu = cpu_models.load(path, 256, adapters=adapters)
    runner = CpuRunner(cpu.plan)
    runner._cpu = cpu
    return Engine(cpu.plan, runner, "cpu")


async def on_wasm(path: Path, adapters: list[Path]) -> Engine:
    return await wasm_engines.load(path, 256, adapters=adapters, threads=2)


async def answer(
    engine: Engine, prompt: list[int], scales: tuple[float, ...] | None, count: int = 10, **options: Any
) -> list[int]:
    stats = options.pop("stats", None)
    batches = engine.generate(GenerationRequest(prompt, GREEDY, AnswerLimits(count), scales=scales, **options), stats)
    return [token async for batch in batches for token in batch.ids]


@pytest.mark.slow
@pytest.mark.parametrize("load", [on_numpy, on_wasm])
@pytest.mark.parametrize("case", CASES)
async def test_logits_and_greedy_ids(case: str, load: Load) -> None:
    """Those of the merged weights, for every set of scales; the ids of steps are llama.cpp's."""
    golden, about = np.load(GOLDEN / "lora" / f"{case}.npz"), json.loads((GOLDEN / "lora" / f"{case}.json").read_text())
    engine, prompt = await load(*files(case)), golden["prompt"].tolist()
    for name, one in about["sets"].items():
        engine.scales = one["scales"]
        logits, _ = await engine.evaluate(prompt)
        assert_close(golden[f"logits_ref.{name}"], logits, "f32")
        ids = await answer(engine, prompt, None)
        same_ids(golden[f"greedy.{name}"], ids, one["greedy_margin"], 1.5 * one["max_abs"] + 2e-3)


@pytest.mark.parametrize("load", [on_numpy, on_wasm])
@pytest.mark.parametrize("case", [LLAMA, MIXTURE])
async def test_sequences_of_a_batch_have_their_own_adapters(case: str, load: Load) -> None:
    """Four requests side by side, each with other scales: the texts that they get alone."""
    engine, prompt = await load(*files(case)), [5, 9, 13, 40, 41]
    sets = [A, B, C, OFF]
    alone = [await answer(engine, prompt, scales, 24) for scales in sets]
    assert len({tuple(ids) for ids in alone}) == 4
    engine.forget()
    assert await asyncio.gather(*(answer(engine, prompt, scales, 24) for scales in sets)) == alone


@pytest.mark.parametrize("load", [on_numpy, on_wasm])
@pytest.mark.parametrize("case", [LLAMA, MIXTURE])
async def test_scale_zero_is_the_model_without_adapters(case: str, load: Load) -> None:
    path, adapters = files(case)
    with_adapters, without = await load(path, adapters), await load(path, [])
    prompt = list(range(3, 23))
    logits = [(await engine.evaluate(prompt))[0] for engine in (without, with_adapters) if not engine.scales]
    with_adapters.scales = OFF
    np.testing.assert_array_equal(logits[0], (await with_adapters.evaluate(prompt))[0])
    assert await answer(with_adapters, prompt, OFF, 30) == await answer(without, prompt, None, 30)


def test_a_plan_has_its_lists_also_as_without_adapters() -> None:
    bare, plan = (cpu_models.load(BASE, 64, adapters=given).plan for given in ([], files(LLAMA)[1]))
    assert not {"lora_scales"} & bare.buffers.keys()
    assert {name: plan.lists[name] for name in bare.lists} == bare.lists
    further = {name: plan.lists[name] for name in plan.lists.keys() - bare.lists.keys()}
    assert {op.kernel for ops in further.values() for op in ops} >= {"add_low_rank", "add_direction"}
    assert all(len(further[adapted(name)]) > len(bare.lists[name]) for name in (DECODE, PREFILL, SMALL_BATCH))
    assert all(further[name] != bare.lists.get(plain(name)) for name in further), "lists that differ"


def test_adapters_take_at_most_one_dispatch_more_for_each_product(tmp_path: Path) -> None:
    """Four adapters for all matrices of a layer's four products.

    One token has one dispatch more. The products of a small batch add what adapters add themselves; where they round x
    themselves without adapters, the rounding is a dispatch of its own.
    """
    header, adapters = cpu_models.header("llama/llama.Q4_0"), [tmp_path / f"{i}.gguf" for i in range(4)]
    matrices = {n: t.shape for n, t in header.tensors.items() if n.startswith("blk.") and len(t.shape) == 2}
    for path in adapters:
        write_adapter(path, "llama", 1.0, {n: pair(rows, cols, 16) for n, (cols, rows) in matrices.items()})
    found = ModelFiles.read(GOLDEN / "llama" / "llama.Q4_0.gguf", adapters)
    gpu = Device(subgroup=32, max_workgroup_storage=48 << 10, max_threads=1024, dot8=True, max_storage_buffers=16)
    plan = planner.make_plan(header, gpu, planner.PlanOptions(64, 8, "f32", adapters=found.adapters))
    layers = header.arch("block_count")
    for name in (DECODE, SMALL_BATCH):
        without, more = ([op for op in plan.lists[n] if op.contexts.include(inf)] for n in (name, adapted(name)))
        rounding = sum(int(op.params.get("ROUNDS", 0)) for op in without)
        assert rounding == (4 * layers if name == SMALL_BATCH else 0)
        assert len(more) == len(without) + (rounding or 4 * layers), name


def test_lists_with_adapters_share_the_memory_of_those_without() -> None:
    bare, plan = (cpu_models.load(BASE, 64, adapters=given).plan for given in ([], files(LLAMA)[1]))
    more = {name for name in plan.buffers.keys() - bare.buffers.keys() if plan.buffers[name].pool == "activations"}
    further = sum(plan.buffers[name].nbytes for name in more)
    assert plan.memory()["activations"] <= bare.memory()["activations"] + further


def test_lists_with_adapters_are_compiled_with_the_model_if_requests_have_them_by_default() -> None:
    def lazy(*scales: float) -> set[str]:
        return cpu_models.load(BASE, 64, adapters=files(LLAMA)[1], scales=scales).plan.lazy

    assert adapted(DECODE) not in lazy(1.0, 0.0, 0.0)
    assert adapted(DECODE) in lazy(0.0, 0.0, 0.0)
    assert adapted(SMALL_BATCH) in lazy(1.0, 0.0, 0.0)


async def test_steps_of_requests_without_adapters_run_lists_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prompts and steps, alone and side by side; an aLoRA whose invocation the prompt lacks is none."""
    alora = tmp_path / "alora.gguf"
    write_adapter(alora, "llama", 1.0, {"blk.0.attn_q.weight": pair(256, 256)}, invocation=[7, 8])
    engine, off, names = await on_numpy(BASE, [*files(LLAMA)[1], alora]), (0.0, 0.0, 0.0, 0.0), list[str]()
    run = Cpu.run

    def recorded(cpu: Cpu, name: str) -> None:
        names.append(name)
        run(cpu, name)

    monkeypatch.setattr(Cpu, "run", recorded)

    async def ran(*scales: tuple[float, ...]) -> set[str]:
        names.clear()
        engine.forget()
        await asyncio.gather(*(answer(engine, [5, 9, 13, 40, 41], one, 8) for one in scales))
        return set(names)

    assert not any(name.endswith(ADAPTED) for name in await ran(off))
    assert not any(name.endswith(ADAPTED) for name in await ran(off, off, (0.0, 0.0, 0.0, 1.0)))
    assert {adapted(PREFILL), adapted(DECODE)} <= await ran((0.0, 0.0, 1.0, 0.0)), "a control vector"
    shared = await ran(off, (1.0, 0.0, 0.0, 0.0))
    assert {PREFILL, adapted(PREFILL), adapted(SMALL_BATCH)} <= shared, "each prompt has its own"


@pytest.mark.parametrize("case", [LLAMA, MIXTURE])
async def test_logits_of_a_request_without_adapters_do_not_depend_on_the_lists(case: str) -> None:
    """Bit by bit: both kinds of lists give the same."""
    path, adapters = files(case)
    cpu = cpu_models.load(path, 64, adapters=adapters)
    cpu.write("lora_scales", bytes(cpu.buffers["lora_scales"].nbytes), 0)
    found = []
    for lists in ((PREFILL, LAST_LOGITS), (PREFILL, DECODE)):
        for variant in (list(lists), [adapted(name) for name in lists]):
            cpu.feed(0, [5, 9, 13], variant[:1])
            cpu.feed(3, [7], variant[1:] if DECODE in lists else variant)
            found.append(cpu.buffers["logits"].copy())
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[2], found[3])


@pytest.mark.parametrize("load", [on_numpy, on_wasm])
async def test_a_control_vector_changes_every_residual_stream(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gemma 3n's layers have several; the reference adds the direction to all."""
    path, vector = GOLDEN / "gemma" / "gemma3n.F16.gguf", tmp_path / "control.gguf"
    direction = np.random.default_rng(3).standard_normal(16).astype(np.float32)
    write_control_vector(vector, "gemma3n", {5: direction})
    one_layer = reference_gemma3n.one_layer

    def controlled(model: Reference, streams: np.ndarray, layer: int, *rest: Any) -> np.ndarray:
        return one_layer(model, streams, layer, *rest) + (layer == 5) * direction

    monkeypatch.setattr(reference_gemma3n, "one_layer", controlled)
    prompt = [5, 9, 13, 40, 41, 7, 9, 13]
    logits, _ = await (await load(path, [vector])).evaluate(prompt)
    assert_close(Reference(path).logits(prompt).astype(np.float32), logits, "f32")


async def test_prefixes_are_shared_with_equal_scales_only() -> None:
    engine, prompt = await on_numpy(*files(LLAMA)), list(range(3, 43))

    async def cached(scales: tuple[float, ...]) -> int:
        stats = GenerationStats()
        await answer(engine, prompt, scales, 1, stats=stats)
        return stats.cached_tokens

    assert [await cached(scales) for scales in (A, A, (0.5, 0.0, 0.0), OFF, OFF, A)] == [0, 39, 0, 0, 39, 39]


async def test_snapshots_of_states_are_shared_with_equal_scales_only() -> None:
    """A recurrent model."""
    engine, prompt = await on_numpy(*files("lora-qwen35.F16")), list(range(3, 153))
    found = []
    for scales in (A, B, A):
        stats = GenerationStats()
        found.append(await answer(engine, prompt, scales, 6, stats=stats))
        found.append([stats.cached_tokens])
    assert found[0] == found[4]
    assert found[0] != found[2]
    assert found[3] == [0]


async def test_default_scales_come_with_the_load() -> None:
    path, adapters = files(LLAMA)
    given = [AdapterOptions(scale=0.5), AdapterOptions(scale=-2.0), AdapterOptions(layers=(2, 9))]
    found = ModelFiles.read(path, adapters, given).adapters
    assert found.defaults == [0.5, -2.0, 1.0]
    assert not found.directions, "the model has two layers, of which the vector is to change none"


async def test_wrong_scales_are_refused() -> None:
    engine = await on_numpy(*files(LLAMA))
    for scales in ((1.0,), (1.0, 0.0, float("nan")), (1e9, 0.0, 0.0)):
        with pytest.raises(WispError, match="scale for each of 3") as error:
            await answer(engine, [1, 2], scales)
        assert error.value.code == "invalid_value"


# -- aLoRA


async def test_an_activated_adapter_counts_from_its_last_invocation_on(tmp_path: Path) -> None:
    """Positions before it are the model's; without an invocation in the prompt, all are."""
    path = tmp_path / "alora.gguf"
    known = cpu_models.header("llama/llama.Q4_K_M").tensors["blk.0.attn_v.weight"].shape
    pair = (np.full((2, known[0]), 0.1, np.float32), np.full((known[1], 2), 0.1, np.float32))
    write_adapter(path, "llama", 4.0, {"blk.0.attn_v.weight": pair}, invocation=[7, 8])
    engine = await on_numpy(BASE, [path])
    prompt = [1, 7, 8, 4, 5, 7, 8, 9, 10]
    engine.scales = (0.0,)
    plain, _ = await engine.evaluate(prompt)
    engine.scales = (1.0,)
    active, _ = await engine.evaluate(prompt)
    np.testing.assert_array_equal(active[:5], plain[:5])
    assert (np.abs(active - plain).max(axis=1)[5:] > 0).all()
    without = [1, 7, 9, 8]
    unchanged, _ = await engine.evaluate(without)
    engine.scales = (0.0,)
    np.testing.assert_array_equal(unchanged, (await engine.evaluate(without))[0])


# -- files that are refused

Pairs = dict[str, tuple[np.ndarray, np.ndarray]]


def pair(rows: int, cols: int, rank: int = 2) -> tuple[np.ndarray, np.ndarray]:
    return np.ones((rank, cols), np.float32), np.ones((rows, rank), np.float32)


@pytest.mark.parametrize(
    ("architecture", "pairs", "code", "said"),
    [
        ("qwen2", {"blk.0.attn_q.weight": pair(256, 256)}, "adapter_mismatch", "'qwen2', the model is 'llama'"),
        ("llama", {"blk.9.attn_q.weight": pair(256, 256)}, "adapter_mismatch", "blk.9.attn_q.weight"),
        ("llama", {"blk.0.attn_q.weight": pair(256, 128)}, "adapter_mismatch", "2 x 128 and 256 x 2"),
        ("llama", {"blk.0.attn_k.weight": pair(65, 256)}, "adapter_mismatch", "the model's 64 x 256"),
        (
            "llama",
            {"blk.0.attn_q.weight": pair(256, 256, 0)},
            "unsupported_adapter",
            "rank for blk.0.attn_q.weight is 0",
        ),
        ("llama", {"blk.0.attn_q.weight": pair(256, 256, 2049)}, "unsupported_adapter", "at most 2048"),
        ("llama", {}, "not_an_adapter", "no tensors"),
        ("llama", {"blk.0.attn_norm.weight": pair(256, 1)}, "adapter_mismatch", "blk.0.attn_norm.weight"),
    ],
)
def test_adapters_that_do_not_fit(architecture: str, pairs: Pairs, code: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "adapter.gguf"
    write_adapter(path, architecture, 1.0, pairs)
    with pytest.raises(WispError, match=said) as error:
        ModelFiles.read(BASE, [path])
    assert (error.value.code, error.value.param) == (code, "lora")
    assert error.value.message.startswith("lora[0]: ")


@pytest.mark.parametrize("experts", [(), (1,), (5,)])
def test_adapters_of_experts_must_have_matrices_for_each(experts: tuple[int, ...], tmp_path: Path) -> None:
    path, tensor = tmp_path / "adapter.gguf", "blk.0.ffn_up_exps.weight"
    cols, rows, count = cpu_models.header("llama/mixtral.F16").tensors[tensor].shape
    a, b = np.ones((*experts, 2, cols), np.float32), np.ones((*experts, rows, 2), np.float32)
    write_adapter(path, "llama", 1.0, {tensor: (a, b)})
    with pytest.raises(WispError, match=f"the model's {count} x {rows} x {cols}") as error:
        ModelFiles.read(GOLDEN / "llama" / "mixtral.F16.gguf", [path])
    assert error.value.code == "adapter_mismatch"


@pytest.mark.parametrize(("width", "layer", "code"), [(255, 1, "adapter_mismatch"), (256, 2, "adapter_mismatch")])
def test_control_vectors_that_do_not_fit(width: int, layer: int, code: str, tmp_path: Path) -> None:
    path = tmp_path / "vector.gguf"
    write_control_vector(path, "llama", {layer: np.ones(width, np.float32)})
    with pytest.raises(WispError) as error:
        ModelFiles.read(BASE, [path])
    assert error.value.code == code


def test_an_adapter_that_exceeds_a_binding(tmp_path: Path) -> None:
    path = tmp_path / "adapter.gguf"
    write_adapter(path, "llama", 1.0, {"blk.0.ffn_up.weight": pair(256, 256, 512)}, "F32")
    found = ModelFiles.read(BASE, [path])
    device = Device(max_binding=1 << 18)
    with pytest.raises(WispError, match="cannot bind the adapter's") as error:
        planner.make_plan(found.parts.header, device, planner.PlanOptions(64, 8, "f32", adapters=found.adapters))
    assert error.value.code == "unsupported_adapter"


def test_models_and_adapters_are_told_apart(tmp_path: Path) -> None:
    adapter = files(LLAMA)[1][0]
    with pytest.raises(WispError, match="Load it beside the model") as error:
        ModelFiles.read(adapter)
    assert error.value.code == "unsupported_architecture"
    with pytest.raises(WispError, match="1 files, but 2 were given"):
        ModelFiles.read(BASE, [BASE])


@pytest.mark.parametrize(
    ("model", "tensor"),
    [
        ("llama/llama-tied.F16", "token_embd.weight"),  # also the output's matrix
        ("latent/deepseek2.F16", "blk.0.attn_k_b.weight"),  # multiplied head by head
    ],
)
def test_matrices_that_adapters_cannot_change(model: str, tensor: str, tmp_path: Path) -> None:
    header = cpu_models.header(model)
    cols, rows = header.tensors[tensor].shape[:2]
    path = tmp_path / "adapter.gguf"
    write_adapter(path, header.architecture, 1.0, {tensor: pair(rows, cols)})
    with pytest.raises(WispError) as error:
        cpu_models.load(GOLDEN / f"{model}.gguf", 64, adapters=[path])
    assert (error.value.code, error.value.param) == ("unsupported_adapter", "lora")
