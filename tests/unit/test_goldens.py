"""Every architecture against llama.cpp's goldens, on the numpy executor, without a browser.

The same files run on WebGPU in tests/engine.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from py_engine.cpu import executor as cpu
from py_engine.plan.lists import ALL_LOGITS, DECODE, EMBED, GREEDY, PACKED, PREFILL, PREFILL_END, pool
from py_engine.plan.packing import packed_batches
from py_engine.plan.pooling import NAMES
from py_engine.plan.sampling import Sampling
from tests.support import answer_cases, cpu_engines, diffusion_cases
from tests.support.cpu_models import evaluate, load
from tests.support.tolerances import assert_close, assert_same_direction, distance, same_ids
from tools.goldens import GOLDEN, golden_models

FILES = golden_models()
EMBEDDING = [p for p in FILES if p.parent.name == "embedding"]
MODELS = [p for p in FILES if p not in (*EMBEDDING, *diffusion_cases.MODELS, *answer_cases.MODELS)]
FAMILIES = {p.parent: p for p in reversed(MODELS)}.values()  # one model of each; the others are left out by --fast


def greedy(model: cpu.Cpu, prompt: list[int], count: int) -> list[int]:
    """Decode greedily: the prompt in batches, then the decode list."""
    model.write("sampling", Sampling(temperature=0).pack())
    batch = model.plan.batch
    starts = range(0, len(prompt), batch)
    for at in starts:
        model.feed(at, prompt[at : at + batch], [*PREFILL_END, GREEDY] if at == starts[-1] else [PREFILL])
    for _ in range(count - 1):
        model.run(DECODE)
        model.run(GREEDY)
    return [int(i) for i in model.buffers["tokens"][0, len(prompt) : len(prompt) + count]]


@pytest.mark.parametrize(
    "path", [p if p in FAMILIES else pytest.param(p, marks=pytest.mark.slow) for p in MODELS], ids=lambda p: p.stem
)
def test_logits_and_greedy_ids(path: Path) -> None:
    golden, about = np.load(path.with_suffix(".npz")), json.loads(path.with_suffix(".json").read_text())
    model = load(path, about["settings"]["n_ctx"])
    prompt = golden["prompt"].tolist()
    assert_close(golden["logits_ref"], evaluate(model, prompt), "f32")
    noise = about["llama_cpp_vs_reference"]["max_abs"] + 2e-3
    same_ids(golden["greedy"], greedy(model, prompt, len(golden["greedy"])), about["greedy_margin"], noise)
    if "long_prompt" in golden:
        long = golden["long_prompt"].tolist()
        want = golden["long_logits_ref"]
        assert_close(want, evaluate(model, long)[-len(want) :], "f32")
        model.feed(len(long) - 1, long[-1:], [DECODE])
        np.testing.assert_allclose(model.buffers["logits"], want[-1], atol=2e-3)


@pytest.mark.parametrize("path", EMBEDDING, ids=lambda p: p.stem)
def test_embeddings(path: Path) -> None:
    """Embeddings with every pooling. A causal model computes its prompt in several batches."""
    golden, about = np.load(path.with_suffix(".npz")), json.loads(path.with_suffix(".json").read_text())
    ids = golden["prompt"].tolist()
    model = load(path, about["settings"]["n_ctx"])
    embedding = model.plan.embedding
    assert embedding
    assert embedding.pooling == about["default_pooling"]
    assert embedding.labels == int("embd_rank" in golden)
    kinds = [name for name in NAMES if f"embd_{name}" in golden]
    for kind, packed in [("none", False), *((kind, True) for kind in kinds)]:
        rows = []
        for batch in packed_batches([ids], len(ids), model.plan.batch):
            if packed:
                model.feed_packed(batch, [PACKED, EMBED, *([pool(kind)] if kind != "none" else [])])
            else:
                model.feed(batch.position, batch.ids.tolist(), [PREFILL, EMBED])
            rows.append(model.buffers[embedding.rows][: len(batch.ids), : embedding.width].copy())
        got = np.concatenate(rows) if kind == "none" else model.buffers["pooled"][0, : embedding.width]
        if kind == "rank":
            got = model.buffers["ranked"][0, : embedding.labels]
        assert_same_direction(golden[f"embd_{kind}_ref"], got, "f32")
        np.testing.assert_allclose(got, golden[f"embd_{kind}_ref"], atol=5e-4)


@pytest.mark.parametrize("path", diffusion_cases.MODELS, ids=lambda p: p.stem)
async def test_diffusion(path: Path) -> None:
    """Logits of a prompt with masks, and what each schedule and algorithm fills in."""
    golden = np.load(path.with_suffix(".npz"))
    engine = cpu_engines.make(diffusion_cases.N_CTX, path=path)
    logits, _ = await engine.evaluate(golden["prompt"].tolist())
    assert_close(golden["logits_ref"], logits, "f32")
    for run in diffusion_cases.runs(path):
        assert await cpu_engines.collect(engine, run.prompt, run.sampling, len(run.ids)) == run.ids


@pytest.mark.parametrize("path", answer_cases.MODELS, ids=lambda p: p.stem)
async def test_answers(path: Path) -> None:
    """Logits of answers in small batches and token by token, and greedy ids."""
    golden, about = answer_cases.golden(path)
    engine = cpu_engines.make(answer_cases.N_CTX, path=path)
    await answer_cases.assert_logits(path, engine)
    prompt = golden["prompt"].tolist()
    ids = await cpu_engines.collect(engine, prompt, Sampling(temperature=0), len(golden["greedy"]))
    same_ids(golden["greedy"], ids, about["greedy_margin"], about["llama_cpp_vs_reference"]["max_abs"] + 2e-3)
    model = load(path, answer_cases.N_CTX)
    model.set_media(0, -len(prompt), None)
    model.feed(0, prompt, [PREFILL])
    for i, token in enumerate([about["start"], *golden["answer"].tolist()]):
        model.feed(len(prompt) + i, [token], [DECODE])
        np.testing.assert_allclose(model.buffers["logits"], golden["logits_ref"][i], atol=2e-3)


def test_another_continuation() -> None:
    """A short convolution's cache allows another continuation from any position, without a trace of the first one."""
    path = GOLDEN / "lfm2" / "lfm2.F16.gguf"
    ids = np.load(path.with_suffix(".npz"))["long_prompt"].tolist()
    model = load(path, 256)
    evaluate(model, ids)
    other = ids[:37] + ids[60:70]
    model.feed(37, other[37:], [PREFILL, ALL_LOGITS])
    got = model.buffers["all_logits.logits"][:10, : model.plan.n_vocab].copy()
    np.testing.assert_allclose(got, evaluate(load(path, 256), other)[37:], atol=1e-3)


@pytest.mark.parametrize(
    "name", ["gemma/gemma2.F16", "gemma/gemma3.F16", "olmo2/olmo3.F16", "gpt_oss/gpt-oss.F16", "lfm2/lfm2.F16"]
)
def test_a_window_s_pages_are_used_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The long prompt with few pages for a window, in batches and token by token."""
    path = GOLDEN / f"{name}.gguf"
    golden = np.load(path.with_suffix(".npz"))
    long, want = golden["long_prompt"].tolist(), golden["long_logits_ref"]
    monkeypatch.setattr("py_engine.plan.cache.MAX_AHEAD", 8)
    model = load(path, 256, batch=8, page=4)
    rows = {b.shape[0] for b in model.plan.buffers.values() if b.pool == "kv"}
    assert max(rows) == 256, "the layers without a window keep everything"
    assert min(rows) < len(long), "the prompt needs more pages than a window has"
    assert_close(want, evaluate(model, long)[-len(want) :], "f32")
    for at in range(len(long) - 4, len(long)):
        model.feed(at, long[at : at + 1], [DECODE])
    np.testing.assert_allclose(model.buffers["logits"], want[-1], atol=2e-3)


@pytest.mark.parametrize("name", ["llama/llama.F16", "gemma/gemma3.F16", "qwen/qwen3.F16"])
def test_cache_in_bytes(name: str) -> None:
    """Logits with a q8_0 cache are close to those with an exact cache, in batches and token by token."""
    path = GOLDEN / f"{name}.gguf"
    golden = np.load(path.with_suffix(".npz"))
    prompt = golden["prompt"].tolist()
    exact, model = load(path, 256), load(path, 256, batch=8, kv_type="q8_0")
    assert model.plan.memory()["kv"] < 0.3 * exact.plan.memory()["kv"]
    difference, kl = distance(evaluate(exact, prompt), evaluate(model, prompt))
    assert 0 < difference < 0.5
    assert kl < 2e-3
    for at in range(len(prompt) - 4, len(prompt)):
        model.feed(at, prompt[at : at + 1], [DECODE])
    assert np.abs(model.buffers["logits"] - golden["logits_ref"][-1]).max() < 0.5
