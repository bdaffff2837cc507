"""Encoder-decoder models: answers side by side, what prompts share, the ends of the context, and what is refused."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, cast

import pytest

from app.answers import prompts
from app.answers.media import RequestMedia
from app.models.loading import vocabulary
from app.openai.requests import chat_request, completion_request
from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.files.gguf_header import parse
from py_engine.generate.answer import AnswerLimits, Begun, GenerationRequest, GenerationStats
from py_engine.plan.adapters import Adapters
from py_engine.plan.kernels import Device
from py_engine.plan.sampling import Sampling
from py_engine.planner import PlanOptions, make_plan
from tests.golden.make.gguf_file import Layout
from tests.golden.make.random_models import build
from tests.support import cpu_engines, wasm_engines
from tests.support.answer_cases import N_CTX, PATHS
from tests.support.cpu_engines import GREEDY, SHAPED, WARM, RandomConstraint, collect, counts
from tests.support.cpu_models import header as header_of
from tests.support.cpu_models import load
from tests.support.media import header_of as header_of_file

T5, FLAN = PATHS["t5"], PATHS["flan-t5"]
LONG = [7 * i % 250 + 3 for i in range(90)]  # more than a batch and a page
PROMPTS = [LONG, LONG[:30], [*LONG[:40], 9], [5], list(range(40, 75))]
KINDS = [GREEDY, WARM, SHAPED, Sampling(temperature=0.7, seed=9, top_k=20, logprobs=2)]


def engine_of(path: Path = T5, page: int = 16, draft: bool = False, n_ctx: int = N_CTX) -> Engine:
    return cpu_engines.engine(n_ctx, page=page, draft=draft, path=path)


async def alone(ids: list[int], sampling: Sampling, count: int, path: Path = T5, **more: Any) -> list[int]:
    return await collect(cpu_engines.make(path=path), ids, sampling, count, **more)


@pytest.mark.slow
@pytest.mark.parametrize("path", [T5, FLAN], ids=["t5", "flan-t5"])
async def test_answers_side_by_side(path: Path) -> None:
    """Each is the text that the request gets alone, whatever the others read."""
    used = engine_of(path)
    for sampling in KINDS:
        want = [await alone(ids, sampling, 20, path) for ids in PROMPTS]
        assert await asyncio.gather(*(collect(used, ids, sampling, 20) for ids in PROMPTS)) == want
    assert counts(used).each, "some steps serve several sequences"


async def test_a_quantized_cache_beside_relative_positions() -> None:
    """One token's keys and values are quantized before attention, which has no binding left for them."""
    cpu = load(T5, N_CTX, 16, kv_type="q8_0")
    runner = cpu_engines.Runner(cpu.plan)
    runner._cpu = cpu
    kernels = [op.kernel for op in cpu.plan.lists["decode"]]
    assert kernels.index("kv_quantize") < kernels.index("attention_decode")
    assert await collect(Engine(cpu.plan, runner, "cpu", 1), LONG, GREEDY, 20) == await alone(LONG, GREEDY, 20)


async def test_biases_of_positions_in_bfloat16(tmp_path: Path) -> None:
    """llama.cpp's converter writes them so with `--outtype bf16`, and its quantization leaves them as they are."""
    path, names = tmp_path / "t5.gguf", [f"{side}.blk.0.attn_rel_b.weight" for side in ("enc", "dec")]
    file, _ = build("t5", 1, kinds=dict.fromkeys(names, "BF16"))
    file.write(path, "F32", Layout(), None)
    compiled = await wasm_engines.load(path, N_CTX)
    numpy = cpu_engines.make(path=path)
    assert {header_of_file(path).tensors[name].type.name for name in names} == {"BF16"}
    assert await collect(compiled, LONG, GREEDY, 20) == await collect(numpy, LONG, GREEDY, 20)


async def test_prompts_with_a_common_beginning_share_nothing() -> None:
    """What the encoder makes of a token depends on those after it."""
    used = engine_of()
    for ids in (LONG, [*LONG[:64], 9, 8], LONG[:64], LONG):
        stats = GenerationStats()
        assert await collect(used, ids, GREEDY, 12, stats=stats) == await alone(ids, GREEDY, 12)
        assert (stats.prompt_tokens, stats.cached_tokens) == (len(ids), 0)


@pytest.mark.slow
async def test_requests_wait_for_pages() -> None:
    """Where the caches may not grow, a young request releases its pages, and its prompt is read again."""
    used = engine_of(page=8, n_ctx=128)

    async def refuse(pages: Any, turn: Any) -> None:
        raise WispError("no memory", "out_of_memory")

    counts(used).reserve_pages = refuse  # type: ignore[method-assign]
    got = await asyncio.gather(*(collect(used, ids, WARM, 30) for ids in PROMPTS))
    assert got == [await alone(ids, WARM, 30) for ids in PROMPTS]
    for pool in used._generation.sequences.cache.pools:
        assert (pool.held, pool.available) == (0, pool.size)


async def test_an_answer_goes_on_where_another_worker_stopped() -> None:
    used, want = engine_of(), await alone(LONG, WARM, 40)
    for count in (1, 2, 17, 39):
        assert await collect(used, LONG, WARM, 40, begun=Begun(want[:count], WARM.seed)) == want[count:]


async def test_drafts_are_looked_up_in_the_prompt() -> None:
    """Their text is that of plain steps, and takes fewer of them."""
    used, want = engine_of(draft=True), await alone(LONG, GREEDY, 100)
    ids = [*want[:60], *LONG[:5]]
    assert await collect(used, ids, GREEDY, 60) == await alone(ids, GREEDY, 60)
    assert await collect(used, LONG, GREEDY, 100) == want
    assert 0 < counts(used).verified < 150


async def test_constraints() -> None:
    """Also with tokens that are forced, which go into the decoder one by one, beside other answers."""
    used = engine_of()
    want = await alone(LONG, WARM, 30, constraint=RandomConstraint(0.5))
    constrained = collect(used, LONG, WARM, 30, constraint=RandomConstraint(0.5))
    got, other = await asyncio.gather(constrained, collect(used, [5, 6], GREEDY, 30))
    assert got == want
    assert other == await alone([5, 6], GREEDY, 30)


async def test_the_end_of_the_context() -> None:
    """Prompt and answer share it. It is not shifted, and has a place for the token that an answer begins with."""
    used = engine_of(n_ctx=64)
    assert await collect(used, LONG[:40], GREEDY, 100, keep=4) == await alone(LONG[:40], GREEDY, 24)
    assert len(await collect(used, LONG[:63], GREEDY, 100)) == 1
    for ids in (LONG[:64], []):
        with pytest.raises(WispError) as error:
            await collect(used, ids, GREEDY, 1)
        assert error.value.code == ("context_length_exceeded" if ids else "invalid_value")
    with pytest.raises(WispError, match="context"):
        await used.evaluate(LONG[:40], answer=LONG[:24])
    assert (await used.evaluate(LONG[:40], answer=LONG[:23]))[1] == (24, 304)


async def test_stop_and_abort() -> None:
    used, want = engine_of(), await alone(LONG, WARM, 40)
    end = want[10]
    assert await collect(used, LONG, WARM, 40, stops=frozenset([end])) == want[: want.index(end) + 1]
    request = GenerationRequest(LONG, WARM, AnswerLimits(200))
    async with aclosing(used.generate(request)) as batches:
        async for batch in batches:
            if batch.ids:
                break
    assert used._generation.sequences.idle
    assert await collect(used, LONG, WARM, 40) == want


def test_the_default_context_has_a_prompt_and_an_answer_of_the_trained_length() -> None:
    from py_engine.load_plan import default_context

    header = header_of("encoder_decoder/t5.F16")
    header.metadata["t5.context_length"] = 512
    assert default_context(header) == 1024


def plan_of(**options: Any) -> None:
    data = T5.read_bytes()
    make_plan(parse(data, None), Device(software=True), PlanOptions(N_CTX, 16, "f16", **options))


@pytest.mark.parametrize(
    "tensor",
    ["dec.output_norm.weight", "dec.blk.1.attn_k.weight", "dec.blk.0.cross_attn_q.weight",
     "dec.blk.1.cross_attn_v.weight", "dec.blk.0.attn_rel_b.weight", "enc.output_norm.weight",
     "dec.blk.1.cross_attn_norm.weight", "dec.blk.0.ffn_norm.weight", "enc.blk.2.attn_norm.weight"],
)  # fmt: skip
def test_a_missing_tensor_is_named(tensor: str) -> None:
    header = header_of("encoder_decoder/t5.F16")
    del header.tensors[tensor]
    with pytest.raises(WispError, match=tensor) as error:
        make_plan(header, Device(software=True), PlanOptions(N_CTX, 16, "f16"))
    assert error.value.code == "missing_tensor"


def test_a_file_that_does_not_say_how_answers_begin() -> None:
    header = header_of("encoder_decoder/t5.F16")
    del header.metadata["t5.decoder_start_token_id"]
    plan = make_plan(header, Device(software=True), PlanOptions(N_CTX, 16, "f16"))
    assert plan.decoder_start == header.metadata["tokenizer.ggml.bos_token_id"]
    del header.metadata["tokenizer.ggml.bos_token_id"]
    with pytest.raises(WispError, match="decoder_start_token_id") as error:
        make_plan(header, Device(software=True), PlanOptions(N_CTX, 16, "f16"))
    assert error.value.code == "missing_metadata"


def test_what_is_refused() -> None:
    """Pictures and sound, adapters, and drafts: neither of it, nor by it."""
    for param, options in (("projector", {"media_width": 80}), ("lora", {"adapters": Adapters([1.0])})):
        with pytest.raises(WispError, match="encoder") as error:
            plan_of(**options)
        assert (error.value.code, error.value.param) == ("unsupported_parameter", param)
    for model, draft in ((T5, T5), (cpu_engines.MODEL, T5), (T5, cpu_engines.MODEL)):
        with pytest.raises(WispError, match="encoder") as error:
            load(model, N_CTX, draft=draft)
        assert (error.value.code, error.value.param) == ("unsupported_parameter", "draft")


async def test_no_embeddings() -> None:
    used = engine_of()
    assert not used.embeddings.preferred
    with pytest.raises(WispError) as error:
        await used.embeddings.one([5, 6], "mean")
    assert error.value.param == "pooling"


def prompt_ids(request: Any, add_eos: bool, path: Path = T5) -> Sequence[int]:
    header = parse(path.read_bytes(), None)
    header.metadata["tokenizer.ggml.add_eos_token"] = add_eos
    model = vocabulary("t5", header, {})
    model.engine = cast(Any, cpu_engines.make(path=path))
    if hasattr(request, "messages"):
        messages = model.template.prepare([{"role": "user", "content": "Hi"}])
        return prompts.of_chat(RequestMedia(model), request, messages, None).ids
    return prompts.of_completion(model, request, request.prompts[0]).ids


def test_prompts_end_with_eos() -> None:
    """Where the model uses it, once; ids are taken as they are. A chat is its text."""
    eos = parse(T5.read_bytes(), None).metadata["tokenizer.ggml.eos_token_id"]
    given = completion_request({"prompt": "Hi"})
    without = prompt_ids(given, add_eos=False)
    assert eos not in without
    assert prompt_ids(given, add_eos=True) == [*without, eos]
    assert prompt_ids(completion_request({"prompt": "Hi</s>"}), add_eos=True).count(eos) == 1
    assert prompt_ids(completion_request({"prompt": [5, 6]}), add_eos=True) == [5, 6]
    chat = chat_request({"messages": [{"role": "user", "content": "Hi"}]})
    assert prompt_ids(chat, add_eos=True) == [*without, eos]
    assert eos not in prompt_ids(given, add_eos=True, path=cpu_engines.MODEL)
