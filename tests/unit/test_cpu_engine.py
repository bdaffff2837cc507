"""The CPU engine's module against llama.cpp's goldens and against numpy, in wasmtime.

tests/engine and tests/e2e run it in browsers.
"""

from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest

from py_engine.generate.media import Media, PromptMedia, media_ids
from py_engine.models.common import dimension
from py_engine.plan.lists import EMBED
from py_engine.plan.pooling import NAMES
from py_engine.plan.sampling import Sampling
from tests.support import answer_cases, cpu_engines, diffusion_cases, wasm_engines
from tests.support.cpu_engines import DYNAMIC, EVERY, SHAPED, UNLIKELY, RandomConstraint, batches, collect
from tests.support.cpu_models import golden, header
from tests.support.media_cases import CASES, VISION, case
from tests.support.tolerances import assert_close, assert_same_direction, distance, same_ids
from tests.support.wasm_engines import rounded_logits
from tools.goldens import GOLDEN, golden_models
from tools.selection import in_turn

pytestmark = pytest.mark.slow

FILES = golden_models()
EMBEDDING = [p for p in FILES if p.parent.name == "embedding"]
MODELS = [p for p in FILES if p not in (*EMBEDDING, *diffusion_cases.MODELS, *answer_cases.MODELS)]
LLAMA = GOLDEN / "llama" / "llama.F32.gguf"
KINDS = ["Q4_0", "Q8_0", "Q4_K", "Q6_K", "IQ4_XS", "F16"]
VARIANTS = ["pairs", "simd"]
# Variants differ in what they do with a type: llama has every type. Other models run in one of them in turn.
CASES_OF_MODELS = [
    (path, variant)
    for at, path in enumerate(MODELS)
    for variant in in_turn(at, VARIANTS, also=VARIANTS if path.parent == LLAMA.parent else ())
]


@pytest.mark.parametrize(("path", "variant"), CASES_OF_MODELS, ids=lambda p: getattr(p, "stem", p))
async def test_logits_and_greedy_ids(path: Path, variant: str) -> None:
    """Logits with floats, logits with rounded activations, greedy ids, on one thread and on two in turn."""
    threads = 1 + (MODELS.index(path) // 2 + (variant == "simd")) % 2
    want, about = golden(path)
    engine = await wasm_engines.load(path, about["settings"]["n_ctx"], variant=variant, threads=threads)
    prompt, noise = want["prompt"].tolist(), about["llama_cpp_vs_reference"]["max_abs"]
    logits, _ = await engine.evaluate(prompt)
    assert_close(want["logits_ref"], logits, "f32")
    rounded = await rounded_logits(engine, prompt)
    assert np.abs(rounded - want["logits_ref"][-1]).max() < 1.5 * noise + 2e-3
    ids = await collect(engine, prompt, Sampling(temperature=0), len(want["greedy"]))
    same_ids(want["greedy"], ids, about["greedy_margin"], 1.5 * noise + 2e-3)
    if "long_prompt" in want:
        logits, _ = await engine.evaluate(want["long_prompt"].tolist())
        assert_close(want["long_logits_ref"], logits[-len(want["long_logits_ref"]) :], "f32")


@pytest.mark.parametrize("variant", ["pairs", "simd"])
@pytest.mark.parametrize("path", diffusion_cases.MODELS, ids=lambda p: p.stem)
async def test_diffusion(path: Path, variant: str) -> None:
    """Logits with floats, and what each schedule and algorithm fills in."""
    want, _ = golden(path)
    engine = await wasm_engines.load(path, diffusion_cases.N_CTX, variant=variant)
    logits, _ = await engine.evaluate(want["prompt"].tolist())
    assert_close(want["logits_ref"], logits, "f32")
    for run in diffusion_cases.runs(path):
        assert await collect(engine, run.prompt, run.sampling, len(run.ids)) == run.ids


@pytest.mark.parametrize("variant", ["pairs", "simd"])
@pytest.mark.parametrize("path", answer_cases.MODELS, ids=lambda p: p.stem)
async def test_answers(path: Path, variant: str) -> None:
    """An encoder-decoder model: logits with floats, and greedy ids, whose inputs are rounded."""
    want, about = golden(path)
    engine = await wasm_engines.load(path, answer_cases.N_CTX, variant=variant, threads=2)
    await answer_cases.assert_logits(path, engine)
    ids = await collect(engine, want["prompt"].tolist(), Sampling(temperature=0), len(want["greedy"]))
    same_ids(want["greedy"], ids, about["greedy_margin"], 1.5 * about["llama_cpp_vs_reference"]["max_abs"] + 2e-3)


@pytest.mark.parametrize("path", EMBEDDING, ids=lambda p: p.stem)
async def test_embeddings(path: Path) -> None:
    """Every pooling, alone and packed with another sequence."""
    want, about = golden(path)
    engine = await wasm_engines.load(path, about["settings"]["n_ctx"], batch=64)
    ids = want["prompt"].tolist()
    precision = "f32" if path.stem.endswith("F32") or path.stem.endswith("F16") else "f16"
    for kind in (name for name in NAMES if f"embd_{name}" in want):
        got, shape = await engine.embeddings.one(ids, kind)
        assert_same_direction(want[f"embd_{kind}_ref"].reshape(shape), got.reshape(shape), precision)
    if "embd_mean" in want:
        rows = [row async for rows in engine.embeddings.all([[ids[:2], ids]], "mean") for row in rows]
        assert_same_direction(want["embd_mean_ref"], rows[1], precision)
        assert np.linalg.norm(rows[1]) == pytest.approx(1, rel=1e-4)
        given = engine.embeddings.all([[ids[:2], ids]], "mean", unit=False)
        whole = [row async for rows in given for row in rows]
        length = np.linalg.norm(want["embd_mean_ref"])
        assert np.linalg.norm(whole[1]) == pytest.approx(length, rel=0.02)
        np.testing.assert_allclose(whole[1] / np.linalg.norm(whole[1]), rows[1], atol=1e-5)


@pytest.mark.parametrize("variant", ["pairs", "dots", "simd"])
@pytest.mark.parametrize("kind", KINDS)
async def test_any_number_of_threads_computes_the_same_bits(kind: str, variant: str) -> None:
    path = GOLDEN / "llama" / f"llama.{kind}.gguf"
    prompt = golden(path)[0]["prompt"].tolist()
    engines = [await wasm_engines.load(path, 256, variant=variant, threads=threads) for threads in (1, 2, 3)]
    assert len({(await rounded_logits(engine, prompt)).tobytes() for engine in engines}) == 1


@pytest.mark.parametrize(
    "name",
    ["llama/llama.Q4_K", "gemma/gemma3.Q8_0", "qwen/qwen3.Q4_K_M", "llama/mixtral.Q4_K_M", "gpt_oss/gpt-oss.MXFP4_MOE"],
)
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
async def test_a_token_has_the_same_bits_in_prompts_and_steps(name: str, kv_type: str) -> None:
    """Whatever the batches of a prompt, so that an answer that is computed again has the same text."""
    ids = np.random.default_rng(1).integers(0, 250, 600).tolist()
    found = []
    for batch in (64, 37):
        engine = await wasm_engines.load(GOLDEN / f"{name}.gguf", 1024, batch, kv_type, threads=2)
        found += [row.tobytes() for row in await rounded_logits(engine, ids)]
    assert len(set(found)) == 1


async def test_experts_on_any_number_of_threads() -> None:
    path = GOLDEN / "llama" / "mixtral.Q4_K_M.gguf"
    prompt = golden(path)[0]["prompt"].tolist()
    one, three = [await wasm_engines.load(path, 256, threads=n) for n in (1, 3)]
    np.testing.assert_array_equal(await rounded_logits(one, prompt), await rounded_logits(three, prompt))


@pytest.mark.parametrize(
    "sampling",
    [Sampling(temperature=1.5, seed=3), SHAPED, EVERY, DYNAMIC, UNLIKELY],
    ids=["plain", "shaped", "every", "dynamic", "unlikely"],
)
async def test_samplers_choose_what_numpy_s_do(sampling: Sampling) -> None:
    """With weights in floats, the logits are nearly the same."""
    ours = await wasm_engines.load(LLAMA, 256)
    numpys = cpu_engines.make()
    prompt = golden(LLAMA)[0]["prompt"].tolist()
    got, want = [await cpu_engines.batches(engine, prompt, sampling, 40) for engine in (ours, numpys)]
    assert [i for b in got for i in b.ids] == [i for b in want for i in b.ids]
    scored = [[row for b in batches for row in b.logprobs or []] for batches in (got, want)]
    for a, b in zip(*scored, strict=True):
        assert a.token == b.token
        assert a.logprob == pytest.approx(b.logprob, abs=1e-3)
        assert [i for i, _ in a.top] == [i for i, _ in b.top]


async def test_constrained_answers_are_those_of_numpy() -> None:
    ours, numpys = await wasm_engines.load(LLAMA, 256), cpu_engines.make()
    found = [await collect(e, cpu_engines.PROMPT, SHAPED, 30, constraint=RandomConstraint()) for e in (ours, numpys)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "name",
    ["llama/llama.Q4_K_M", "granite/granitehybrid.F16", "qwen35/qwen35.F16", "qwen35/qwen4exp.F16", "rwkv/rwkv7.F16"],
)
async def test_a_batch_gives_each_sequence_the_text_that_it_gets_alone(name: str) -> None:
    """Of seeded requests side by side. Small batches compute each row as a single step does."""
    import asyncio

    path = GOLDEN / f"{name}.gguf"
    engine = await wasm_engines.load(path, 256, threads=2)
    prompts = [[1 + i, 5, 9 + i, 13] for i in range(4)]
    samplings = [Sampling(temperature=1.1, seed=i, top_p=0.9) for i in range(4)]
    pairs = list(zip(prompts, samplings, strict=True))
    side_by_side = await asyncio.gather(*(collect(engine, ids, sampling, 24) for ids, sampling in pairs))
    alone = await wasm_engines.load(path, 256)
    assert side_by_side == [await collect(alone, ids, sampling, 24) for ids, sampling in pairs]


async def test_drafts_do_not_change_the_text() -> None:
    path = GOLDEN / "llama" / "llama.Q4_0.gguf"
    prompt = [1, 5, 9, 13, 5, 9, 13, 5, 9, 13, 5, 9]
    texts, drafted = [], 0
    for drafting in (False, True):
        engine = await wasm_engines.load(path, 256)
        wish = drafting

        def step_ms(rows: int, *, drafting: bool = False, n_model_draft: int = 0, wish: bool = wish) -> float:
            return 1.0 if drafting == wish else 100.0

        engine.runner.step_ms = step_ms  # type: ignore[method-assign]
        texts.append(await collect(engine, prompt, Sampling(temperature=0), 40))
        drafted = engine._generation.totals.draft_tokens
    assert texts[0] == texts[1]
    assert drafted > 0


@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
async def test_caches_of_other_types(kv_type: str) -> None:
    """Logits are close to those with an exact cache, in batches and token by token; pages can be stored."""
    path = GOLDEN / "llama" / "llama.F16.gguf"
    want = golden(path)[0]
    engine = await wasm_engines.load(path, 256, batch=8, kv_type=kv_type)
    logits, _ = await engine.evaluate(want["prompt"].tolist())
    limit = 0.5 if kv_type == "q8_0" else 0.02
    assert 0 < np.abs(logits - want["logits_ref"]).max() < limit
    assert np.abs(await rounded_logits(engine, want["prompt"].tolist()) - want["logits_ref"][-1]).max() < limit
    data = await engine.runner.read_pages([(0, 0)])
    engine.runner.write_pages([(0, 1, 0)], data)
    assert await engine.runner.read_pages([(0, 1)]) == data


@pytest.mark.parametrize("name", ["gemma/gemma3.F16", "gpt_oss/gpt-oss.F16", "lfm2/lfm2.F16"])
async def test_a_window_s_pages_are_used_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The long prompt with few pages for a window; the caches grow for a second sequence."""
    path = GOLDEN / f"{name}.gguf"
    want = golden(path)[0]
    monkeypatch.setattr("py_engine.plan.cache.MAX_AHEAD", 8)
    engine = await wasm_engines.load(path, 256, batch=8, page=4)
    ids = want["long_prompt"].tolist()
    logits, _ = await engine.evaluate(ids)
    assert_close(want["long_logits_ref"], logits[-len(want["long_logits_ref"]) :], "f32")
    pages = [group.pages for group in engine.plan.page_groups]
    await engine.runner.reserve_pages([2 * count for count in pages], nullcontext)
    again, _ = await engine.evaluate(ids)
    np.testing.assert_array_equal(again, logits)


@pytest.mark.parametrize(("model", "name"), CASES)
async def test_prompts_with_pictures(model: str, name: str) -> None:
    wanted = case(model, name)
    engine = await wasm_engines.load(VISION / wanted.text, 256, media_width=wanted.width, whole_media=wanted.whole)
    media = PromptMedia(wanted.media)
    logits, _ = await engine.evaluate(wanted.ids + wanted.forced, media)
    difference, kl = distance(wanted.logits, logits[-len(wanted.logits) :])
    assert difference <= (0.03 if "gemma" in model else 5e-3)  # llama.cpp looks GELU up in a table of float16
    assert kl <= 1e-5
    ids = await collect(engine, wanted.ids, Sampling(temperature=0), 16, media=media)
    same_ids(wanted.greedy, ids, wanted.margin, 5e-3)


@pytest.mark.parametrize(
    "model",
    [
        "llama/llama.Q4_0",
        # these scale the embeddings of media as those of tokens
        *("gemma/gemma2.F16", "latent/minicpm3.F16", "experts/grok.F16", "experts/afmoe.F16", "dense/hrm_text.F16"),
        *("granite/granite.F16", "vision/pictures.gemma"),
        "gpt2/gpt2.F16",  # adds rows of positions to those of tokens
        "granite/graniteswitch.F16",  # looks up other tokens than the prompt has
    ],
)
async def test_what_follows_a_picture_is_evaluated_as_exactly_as_text(model: str) -> None:
    """Also what comes before the picture's end, whose logits are not wanted. The picture here: rows of tokens."""
    path = GOLDEN / f"{model}.gguf"
    ids = np.random.default_rng(4).integers(5, 250, 20).tolist()
    engine = await wasm_engines.load(path, 256, media_width=dimension(header(model), "embedding_length"))
    rows, shape = await engine.token_rows(ids[4:12])
    picture = Media(media_ids("rows", 8), rows.reshape(shape), as_text=True)
    logits, _ = await engine.evaluate([*ids[:4], *picture.ids, *ids[12:]], PromptMedia([picture]))
    np.testing.assert_allclose(logits, (await engine.evaluate(ids))[0][12:], atol=1e-4)


async def test_an_answer_does_not_depend_on_what_was_evaluated_before() -> None:
    """Keys and values of products with floats are not those of a prompt, whose inputs are rounded."""
    path = GOLDEN / "llama" / "llama.Q4_0.gguf"
    ids = np.random.default_rng(2).integers(3, 250, 150).tolist()  # whole pages
    sampling = Sampling(temperature=0, logprobs=1)
    found = []
    for evaluates in (True, False):
        engine = await wasm_engines.load(path, 256)
        if evaluates:
            await engine.evaluate(ids)
        answer = await batches(engine, ids, sampling, 4)
        found.append([row for batch in answer for row in batch.logprobs or ()])
    assert found[0] == found[1] != []


async def test_embedding_rows_of_a_decoder() -> None:
    """Every token's embedding, of several batches."""
    engine = await wasm_engines.load(LLAMA, 256, batch=8)
    assert EMBED in engine.plan.lists
    rows, shape = await engine.embeddings.one(list(range(1, 21)), "none")
    other, _ = await (await wasm_engines.load(LLAMA, 256, batch=32)).embeddings.one(list(range(1, 21)), "none")
    np.testing.assert_allclose(rows.reshape(shape), other.reshape(shape), atol=1e-5)
