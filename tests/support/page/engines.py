"""Loads a model's engine for one call, and the tasks that tests run on it."""

import asyncio
import base64
import importlib
import inspect
from collections.abc import Collection
from contextlib import nullcontext
from typing import Any

import js

from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.files.gguf_header import Header, read_header
from py_engine.files.shards import open_source
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.gpu import gpu
from py_engine.gpu.pipelines import PipelineCache
from py_engine.options import DraftOptions, LoadOptions
from py_engine.plan import budget
from py_engine.plan.kernels import Shader
from py_engine.plan.lists import DECODE_STEP
from py_engine.plan.sampling import Sampling
from tests.support.page.patches import patched

GREEDY = Sampling(temperature=0)
Logits = dict[str, Any]  # {"logits": float32 in base64, "shape": [n_tokens, n_vocab]}


async def with_engine(
    task: str, urls: list[str], options: dict[str, Any], arguments: dict[str, Any], within: str | None
) -> Any:
    """Load the model and return `task(engine, **arguments)`, in the context `within()` if it is given.

    Names are "module.function".
    """
    with _function(within)() if within else nullcontext():
        return await _with_engine(task, urls, options, arguments)


async def _with_engine(task: str, urls: list[str], options: dict[str, Any], arguments: dict[str, Any]) -> Any:
    opened = [await open_model(url) for url in urls]
    sources, headers = (list(part) for part in zip(*opened, strict=True))
    several = len(urls) > 1
    if "draft" in options:
        options["draft"] = DraftOptions(**options["draft"])
    engine = await Engine.load(
        sources if several else sources[0], headers if several else headers[0], LoadOptions(**options)
    )
    try:
        result = _function(task)(engine, **arguments)
        return await result if inspect.isawaitable(result) else result
    finally:
        await engine.unload()
        for source in sources:
            source.close()


def _function(name: str) -> Any:
    module, _, function = name.rpartition(".")
    return getattr(importlib.import_module(f"tests.support.page.{module}"), function)


async def open_model(url: str) -> tuple[Any, Header]:
    """Open a file of the tests' server and read its header."""
    source = await open_source(js.URL.new(url, js.location.href).href, lambda *_: None)
    return source, await read_header(source.read, source.size)


def raw(values: Any) -> str:
    """Float32 values of numpy or of JavaScript, in base64."""
    data = values.tobytes() if hasattr(values, "tobytes") else js.Uint8Array.new(values.buffer).to_bytes()
    return base64.b64encode(data).decode()


async def collect(
    engine: Engine, ids: list[int], sampling: Sampling, count: int, stop: Collection[int] = ()
) -> list[int]:
    """All ids of an answer."""
    request = GenerationRequest(ids, sampling, AnswerLimits(count, frozenset(stop)))
    return [i async for batch in engine.generate(request) for i in batch.ids]


async def evaluate(engine: Engine, prompt: list[int]) -> Logits:
    """Logits of every position."""
    logits, shape = await engine.evaluate(prompt)
    return {"logits": raw(logits), "shape": list(shape)}


async def evaluate_and_generate(engine: Engine, prompt: list[int], count: int) -> dict[str, Any]:
    """Logits of the prompt, the greedy answer, the device variant of the kernels, their proof, and notices."""
    found = await evaluate(engine, prompt)
    ids = await collect(engine, prompt, GREEDY, count)
    stats = engine.stats()
    kernels = stats["kernels"] if engine.backend == "webgpu" else None
    more = {"proof": stats["proof"], "notices": stats["notices"]}
    return {**found, **more, "ids": ids, "backend": engine.backend, "kernels": kernels}


async def evaluate_and_fill_in(engine: Engine, prompt: list[int], runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Logits of a diffusion model's prompt, what it fills in with each run's options, and the proof of the kernels."""
    found = await evaluate(engine, prompt)
    ids = [
        await collect(engine, one["prompt"], Sampling(temperature=0, **one["options"]), one["count"]) for one in runs
    ]
    return {**found, "ids": ids, "proof": engine.stats()["proof"]}


async def evaluate_answers(
    engine: Engine, prompts: list[list[int]], answers: list[list[int]], count: int
) -> dict[str, Any]:
    """Logits of an encoder-decoder model's answers, what it generates for each prompt, and the proof of the kernels."""
    evaluated = [await engine.evaluate(prompt, answer=answer) for prompt, answer in zip(prompts, answers, strict=True)]
    alone = [await collect(engine, prompt, GREEDY, count) for prompt in prompts]
    batched = await asyncio.gather(*(collect(engine, prompt, GREEDY, count) for prompt in prompts))
    found = [{"logits": raw(logits), "shape": list(shape)} for logits, shape in evaluated]
    stats = {"backend": engine.backend, "proof": engine.stats()["proof"]}
    return {"evaluated": found, "alone": alone, "batched": list(batched), **stats}


async def evaluate_long_too(engine: Engine, prompt: list[int], count: int, long: list[int]) -> dict[str, Any]:
    """The result of evaluate_and_generate, and the logits of a longer prompt if there is one."""
    found = await evaluate_and_generate(engine, prompt, count)
    return {**found, "long": await evaluate(engine, long) if long else None}


async def evaluate_and_kernels(engine: Engine, prompt: list[int]) -> dict[str, Any]:
    """Logits, and the device variant that the kernels were chosen for."""
    return {**await evaluate(engine, prompt), "kernels": engine.stats()["kernels"]}


async def embed_with_each(engine: Engine, prompt: list[int], kinds: list[str]) -> dict[str, Any]:
    """Embeddings by the default pooling ("None") and by each kind, the proof of the kernels, and the error code of
    evaluate() for an encoder.
    """
    found: dict[str, Any] = {}
    for kind in (None, *kinds):
        values, shape = await engine.embeddings.one(prompt, kind)
        found[str(kind)] = [raw(values), list(shape)]
    if not engine.plan.generates:
        try:
            await engine.evaluate(prompt)
        except WispError as error:
            found["code"] = error.code
    return found | {"proof": engine.stats()["proof"]}


async def embed_packed(engine: Engine, groups: list[list[list[int]]], pooling: str) -> list[list[list[float]]]:
    """Embeddings of groups of sequences, and of every sequence in a group of its own."""
    found = []
    for given in (groups, [[ids] for group in groups for ids in group]):
        found.append([row async for rows in engine.embeddings.all(given, pooling) for row in _rows(engine, rows)])
    return found


def _rows(engine: Engine, values: Any) -> list[list[float]]:
    """Rows of a numpy array or of a Float32Array."""
    flat = (values.reshape(-1) if hasattr(values, "reshape") else values.to_py()).tolist()
    return [flat[at : at + engine.embeddings.width] for at in range(0, len(flat), engine.embeddings.width)]


async def load_a_part_alone(engine: Engine, url: str, prompt: list[int]) -> dict[str, Any]:
    """Logits of a model in several files, and the error that loading one of them gives."""
    found = await evaluate(engine, prompt)
    source, header = await open_model(url)
    try:
        await Engine.load(source, header, LoadOptions())
    except WispError as error:
        return {**found, "code": error.code, "message": str(error)}
    finally:
        source.close()
    return found


async def differing_chats(engine: Engine, chats: list[dict[str, list[int]]]) -> list[dict[str, Any]]:
    """The chats with a different greedy answer: the position, and the gap between the two tokens' logits."""
    differing = []
    for number, chat in enumerate(chats):
        want = chat["tokens"]
        got = await collect(engine, chat["prompt"], GREEDY, len(want))
        k = next((k for k, (a, b) in enumerate(zip(want, got, strict=False)) if a != b), None)
        if k is not None:
            logits, shape = await engine.evaluate(chat["prompt"] + want[:k])
            row = logits.to_py().tolist()[-shape[1] :]
            differing.append({"chat": number, "at": k, "gap": row[got[k]] - row[want[k]]})
    return differing


async def requests_in_a_row(engine: Engine) -> dict[str, Any]:
    """Greedy and seeded answers, an aborted answer, the first answer again, and a longer prompt after a cached one."""
    prompt = list(range(100, 140))
    warm = Sampling(temperature=1, top_k=40, top_p=0.95, min_p=0.02, seed=7)
    first = await collect(engine, prompt, GREEDY, 24)
    sampled = [await collect(engine, prompt, warm, 24) for _ in range(2)]
    other = await collect(engine, prompt, Sampling(temperature=1, seed=8), 24)
    stream = engine.generate(GenerationRequest([1, 2, 3, *prompt], warm, AnswerLimits(200)))
    taken = 0
    async for batch in stream:
        taken += len(batch.ids)
        if taken >= 3:
            break
    await stream.aclose()
    again = await collect(engine, prompt, GREEDY, 24)
    longer = await collect(engine, [*prompt, *first[:10], 5, 6], GREEDY, 4)
    return {
        "first": first,
        "sampled": sampled,
        "other": other,
        "taken": taken,
        "again": again,
        "longer": len(longer),
        "last": engine.stats()["last"],
    }


async def stop_at_the_fifth_token(engine: Engine) -> list[list[int]]:
    """A whole answer, and the answer that ends at the whole one's fifth token."""
    prompt = list(range(100, 110))
    whole = await collect(engine, prompt, GREEDY, 12)
    return [whole, await collect(engine, prompt, GREEDY, 12, [whole[4]])]


async def small_device_then_lost_device(engine: Engine, url: str) -> list[Any]:
    """The error codes of both, and the length of an answer between them."""
    codes = []
    source, header = await open_model(url)
    try:
        await Engine.load(source, header, LoadOptions(64, "webgpu", variant={"max_buffer": 1 << 18}))
    except WispError as error:
        codes.append(error.code)
    finally:
        source.close()
    before = await collect(engine, [1, 2, 3], GREEDY, 4)
    runner: Any = engine.runner
    runner.gpu.device.destroy()
    try:
        await collect(engine, [1, 2, 3, 4], GREEDY, 4)
    except WispError as error:
        codes.append(error.code)
    return [codes, len(before)]


async def codes_of_causes(engine: Engine) -> list[list[str]]:
    """The codes of Gpu.cause() of a defect, a wrong request and an internal error: on a device, then a lost one."""
    runner: Any = engine.runner
    errors = [ValueError("x"), WispError("x", "invalid_value"), WispError("x", "internal_error")]

    async def codes() -> list[str]:
        causes = [await runner.gpu.cause(error) for error in errors]
        return [getattr(cause, "code", type(cause).__name__) for cause in causes]

    found = [await codes()]
    runner.gpu.device.destroy()
    return [*found, await codes()]


async def replaced_while_it_compiles(engine: Engine) -> list[str]:
    """The code of a request's first step, for which kernels are compiled while another device replaces its own."""
    runner: Any = engine.runner

    async def compile(**_: Any) -> None:
        runner.gpu.lost = "destroyed"
        runner.gpu.close()

    runner.gpu.compile = compile
    try:
        await runner.configure(GREEDY, 1, 0, False)
    except WispError as error:
        return [error.code]
    return []


async def failed_recordings(engine: Engine) -> dict[str, Any]:
    """Let the memory for lists run out: the codes, and of each list the commands recorded at last and those planned."""
    runner: Any = engine.runner
    device, codes = runner.gpu, []
    lazy = sorted(set(device.plan.lazy) - device.recorded)[:4]
    guarded = device.guarded

    def fail_at(call: int) -> None:
        async def failing(work: Any) -> None:
            nonlocal call
            call -= 1
            await guarded(work)
            if not call:
                device.guarded = guarded
                raise budget.out_of_memory(device.plan)

        device.guarded = failing

    async def code(work: Any) -> None:
        try:
            await work
        except WispError as error:
            codes.append(error.code)

    fail_at(1)
    await code(device.compile(names=lazy))
    await asyncio.gather(*(device.compile(names=lazy) for _ in range(3)))
    counts = {name: [int(device.replay.lists.get(name).length), len(device.plan.lists[name])] for name in lazy}
    fail_at(2)  # after the caches have grown
    await code(runner.reserve_pages([group.pages + 1 for group in device.plan.page_groups], nullcontext))
    await code(runner.prepare(lazy))
    return {"codes": codes, "counts": counts}


async def lose_device_in_load(engine: Engine, url: str, stage: str) -> list[str]:
    """Load a model and destroy its device as the load reports `stage`: the error's code, then a first answer's."""
    devices: list[Any] = []
    request_device = gpu.request_device

    async def watched(adapter: Any) -> Any:
        devices.append(await request_device(adapter))
        return devices[-1]

    def lose(reported: str, done: int, total: int) -> None:
        if reported == stage:
            devices[-1].destroy()

    gpu.request_device = watched
    source, header = await open_model(url)
    try:
        other = await Engine.load(source, header, LoadOptions(64, "webgpu", tune=False), lose)
        await collect(other, [1, 2, 3], GREEDY, 2)
    except WispError as error:
        return [error.code]
    finally:
        gpu.request_device = request_device
        source.close()
    return ["none"]


async def requested_pipelines(engine: Engine, url: str) -> list[str]:
    """The kernels of a load's pipelines, in the order in which the device was asked for them."""
    found: list[str] = []

    class Noted(PipelineCache):
        async def _compile(self, shader: Shader) -> Any:
            found.append(shader.kernel)
            return await super()._compile(shader)

    source, header = await open_model(url)
    with patched(gpu, PipelineCache=Noted):
        await (await Engine.load(source, header, LoadOptions(64, "webgpu", tune=False))).unload()
    source.close()
    return found


async def profile(engine: Engine) -> dict[str, Any]:
    """The profile of a decoded token and of a batch of 16, the read rates, and the number of a token's dispatches."""
    return {
        "decode": await engine.profile(5),
        "prefill": await engine.profile(0, 16),
        "rates": engine.stats()["read_rates"],
        "multiply_rates": engine.stats()["multiply_rates"],
        "count": sum(len(engine.plan.lists[name]) for name in DECODE_STEP),
    }
