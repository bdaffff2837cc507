"""Packed batches: what they hold, and that packed sequences have the embeddings that each has alone."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from py_engine.cpu import executor as cpu
from py_engine.plan.lists import (
    DECODE,
    EMBED,
    NORMALIZE,
    PACKED,
    PACKED_LAST,
    PREFILL,
    PREFILL_END,
    SMALL_BATCH_LOGITS,
    pool,
)
from py_engine.plan.packing import PackedBatch, PackedPrompt, packed_batches, packed_prompts, padded_prompts
from py_engine.plan.pages import PREFIX_WORDS, SEGMENT_WORDS, pages_for
from py_engine.plan.pooling import NAMES
from tests.support.cpu_models import GOLDEN, load
from tests.support.tolerances import assert_same_direction

# rotation, position embeddings, windows of one kind or two, q8_0-like caches apart: a short convolution, ALiBi,
# experts; an index that chooses positions of a sequence's own; compressed keys
MODELS = [
    *sorted(GOLDEN.glob("embedding/*.gguf")),
    *(GOLDEN / f"{name}.gguf" for name in ("llama/llama.F16", "gpt2/gpt2.F16", "gemma/gemma3.F16", "lfm2/lfm2.F16")),
    *(GOLDEN / f"latent/{name}.F16.gguf" for name in ("deepseek32-top6", "glm-dsa-top9", "glm5-next-top8")),
    GOLDEN / "qwen35/qwen4exp-top8.F16.gguf",
    GOLDEN / "latent/deepseek4-top3.F16.gguf",
]
PROMPTED = (
    *("llama/llama", "llama/mixtral", "gemma/gemma2", "gemma/gemma3", "gemma/gemma3n", "gpt2/gpt2", "gpt_oss/gpt-oss"),
    *(
        "phi3/phi3",
        "lfm2/lfm2",
        "olmo2/olmo2",
        "latent/deepseek2",
        "latent/minicpm3",
        "qwen/qwen3moe",
        "experts/llama4",
    ),
)
WITH_PREFIXES = (
    "llama/llama",
    "gemma/gemma2",
    "gemma/gemma3",
    "gpt2/gpt2",
    "gpt_oss/gpt-oss",
    "experts/llama4",
    "dense/qwen2vl",
)
UNPACKED = ("qwen35/qwen35", "mamba/mamba", "diffusion/llada")


@given(
    st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=40), min_size=1, max_size=12),
    st.integers(1, 50),
    st.integers(1, 20),
)
def test_every_token_is_packed_once(sequences: list[list[int]], span: int, size: int) -> None:
    """In order, in batches that are as full as the span allows, each with the segment that it belongs to."""
    found: list[list[int]] = [[] for _ in sequences]
    position, alone = 0, set[int]()
    for batch in packed_batches(sequences, span, size):
        assert batch.position == position
        assert 1 <= len(batch.ids) <= size
        assert len(batch.ids) == size or batch.last
        segments = np.array(batch.segments).reshape(-1, SEGMENT_WORDS)
        for m, (token, (begin, end, row)) in enumerate(zip(batch.ids, segments.tolist(), strict=True)):
            assert begin + len(found[row]) == position + m
            assert end - begin == len(sequences[row])
            assert end <= span or (begin == 0 and batch.long)
            found[row].append(token)
            alone |= {row} if batch.long else set()
        position = 0 if batch.last else position + len(batch.ids)
    assert found == sequences
    assert alone == {row for row, sequence in enumerate(sequences) if len(sequence) > span}


def pooled(model: cpu.Cpu, sequences: list[list[int]], kind: str, span: int, size: int) -> np.ndarray:
    """The rows of sequences packed into `span` tokens, in batches of `size`."""
    for batch in packed_batches(sequences, span, size):
        model.feed_packed(batch, [PACKED, EMBED, pool(kind)])
    assert model.plan.embedding
    if kind == "rank":
        return model.buffers["ranked"][: len(sequences), : model.plan.embedding.labels].copy()
    model.states[0, 1] = len(sequences)
    model.run(NORMALIZE)
    return model.buffers["pooled"][: len(sequences), : model.plan.embedding.width].copy()


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_packed_sequences_do_not_see_each_other(path: Path) -> None:
    """Embeddings and scores are those of each sequence alone. A causal model's batches cut through sequences."""
    model = load(path, 64, 16)
    random = np.random.default_rng(7)
    lengths = (1, 9, 30, 2, 17, 3)
    sequences = [random.integers(0, model.plan.n_vocab, n).tolist() for n in lengths]
    assert model.plan.embedding
    for kind in NAMES[1:] if model.plan.embedding.labels else NAMES[1:4]:
        alone = np.concatenate([pooled(model, [ids], kind, 64, model.plan.batch) for ids in sequences])
        packed = pooled(model, sequences, kind, 64, model.plan.batch)
        assert_same_direction(alone, packed, "f32")
        np.testing.assert_allclose(packed, alone, atol=1e-4)
        if kind == "last" and model.plan.generates:
            assert np.abs(packed[1] - packed[2]).max() > 0.01, "another sequence has another embedding"


@given(
    st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=40), min_size=1, max_size=12),
    st.sampled_from([1, 8, 16]),
)
def test_every_prompt_of_a_batch_without_gaps_begins_with_a_page(prompts: list[list[int]], page: int) -> None:
    """Tokens between two prompts see only each other, and have a row that no prompt has."""
    batch = padded_prompts(prompts, page)
    segments = np.array(batch.segments).reshape(-1, SEGMENT_WORDS)
    assert len(batch.ids) == len(segments) <= sum(-(-len(prompt) // page) * page for prompt in prompts)
    at = 0
    for row, prompt in enumerate(prompts):
        assert at % page == 0
        end = at + len(prompt)
        assert batch.ids[at:end].tolist() == prompt
        assert (segments[at:end] == (at, end, row)).all()
        at = min(-(-end // page) * page, len(batch.ids))
        assert (segments[end:at] == (end, at, len(prompts))).all()
    assert at == len(batch.ids)


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=9),
    st.sampled_from([1, 8, 16]),
)
def test_every_token_has_its_place_in_the_pages_of_its_prompt(sizes: list[tuple[int, int, int]], page: int) -> None:
    """The batch has what the caches lack, and pages that others have in common with the first prompt are its own."""
    common = sizes[0][0] // page
    prompts = [
        PackedPrompt(list(range(n)), begin, page * min(shared, begin // page, common) if row else 0)
        for row, (begin, n, shared) in enumerate(sizes)
    ]
    batch, listed, m = packed_prompts(prompts, page), list[tuple[int, int]](), 0
    for row, prompt in enumerate(prompts):
        listed += [(row, i) for i in range(prompt.shared // page, pages_for(prompt.end, page))]
    assert len(batch.filled) == len(listed)
    segments = np.array(batch.segments).reshape(-1, SEGMENT_WORDS).tolist()
    prefixes = np.array(batch.prefixes).reshape(-1, PREFIX_WORDS).tolist()
    for row, prompt in enumerate(prompts):
        for i in range(prompt.begin, prompt.end):
            (begin, end, to), (prefix, gaps) = segments[m], prefixes[m]
            position = batch.position + m + gaps
            assert (batch.ids[m], to, prefix) == (i - prompt.begin, row, prompt.shared)
            assert listed[position // page] == (row, i // page)
            assert (position - begin, position % page, end - position) == (i, i % page, prompt.end - i)
            m += 1
    assert m == len(batch.ids) == len(segments) == len(prefixes)
    for at, (filled, (row, i)) in enumerate(zip(batch.filled, listed, strict=True)):
        assert filled - at * page == min(page, prompts[row].end - i * page)


def logits_after(model: cpu.Cpu, ids: list[int], seq: int, token: int) -> list[np.ndarray]:
    """The logits after a prompt, and after one more token that is decoded."""
    found, n = list[np.ndarray](), model.plan.n_vocab
    for position, tokens, lists in ((0, ids, PREFILL_END), (len(ids), [token], (DECODE,))):
        model.feed(position, tokens, lists, seq)
        found.append(model.buffers["logits"].reshape(-1)[:n].copy())
    return found


def check_logits(
    model: cpu.Cpu, batch: PackedBatch, prompts: list[list[int]], pages: list[list[int]], alone: list[list[np.ndarray]]
) -> None:
    """Compare the logits after each prompt of a packed batch, and after one more token, which reads its pages."""
    model.feed_packed(batch, [PACKED, PACKED_LAST])
    for seq, ids in enumerate(prompts):
        model.states[seq] = len(ids) - 1, len(prompts), 0, seq
        model.set_tokens(seq, 0, ids)
        set_pages(model, seq, 0, pages[seq])
    model.run(SMALL_BATCH_LOGITS)
    after = model.buffers["small_batch_logits.logits"][: len(prompts), : model.plan.n_vocab].copy()
    for seq, ids in enumerate(prompts):
        np.testing.assert_allclose(after[seq], alone[seq][0], atol=1e-3, rtol=1e-3)
        model.feed(len(ids), [5], [DECODE], seq)
        logits = model.buffers["logits"].reshape(-1)[: model.plan.n_vocab]
        np.testing.assert_allclose(logits, alone[seq][1], atol=1e-3, rtol=1e-3)


def set_pages(model: cpu.Cpu, seq: int, first: int, pages: list[int]) -> None:
    for group in range(len(model.plan.page_groups)):
        model.set_pages(group, seq, first, pages)


@pytest.mark.parametrize("name", PROMPTED)
def test_packed_prompts_have_the_logits_of_each_alone(name: str) -> None:
    path, page = GOLDEN / f"{name}.F16.gguf", 16
    model = load(path, 128, 128, page=page)
    random = np.random.default_rng(8)
    prompts = [random.integers(1, model.plan.n_vocab, n).tolist() for n in (9, 16, 17, 30, 3)]
    alone = [logits_after(model, ids, 0, 5) for ids in prompts]
    model = load(path, 128, 128, page=page)
    if model.plan.packs_prefixes:
        batch = packed_prompts([PackedPrompt(ids) for ids in prompts], page)
    else:
        batch = padded_prompts(prompts, page)
    pages, begin = list[list[int]](), 0
    for ids in prompts:
        end = begin + pages_for(len(ids), page)
        pages.append([*range(begin, end), 128 // page - 1])
        begin = end
    check_logits(model, batch, prompts, pages, alone)


@pytest.mark.parametrize("name", WITH_PREFIXES)
def test_packed_prompts_with_a_cached_beginning_have_the_logits_of_each_alone(name: str) -> None:
    """It ends within a page or with it; all, some or none of it is in pages of the first prompt. The rest is NaN."""
    path, page, n_ctx = GOLDEN / f"{name}.F16.gguf", 16, 256
    model = load(path, n_ctx, n_ctx, page=page)
    random = np.random.default_rng(8)
    ids = [random.integers(1, model.plan.n_vocab, n).tolist() for n in (80, 9, 27, 40, 5, 30)]
    prompts = [ids[0], ids[0][:48] + ids[1], ids[0][:33] + ids[2], ids[0][:16] + ids[3], ids[4], ids[5]]
    cached = (60, 48, 33, 32, 0, 21)  # tokens
    shared = (0, 48, 32, 16, 0, 0)
    alone = [logits_after(model, one, 0, 5) for one in prompts]
    model = load(path, n_ctx, n_ctx, page=page)
    for group in model.plan.page_groups:
        for cache in group.caches:
            model.buffers[cache][:] = np.nan
    parts = [PackedPrompt(one[n:], n, s) for one, n, s in zip(prompts, cached, shared, strict=True)]
    pages, free = list[list[int]](), list(random.permutation(n_ctx // page))
    for seq, (one, part) in enumerate(zip(prompts, parts, strict=True)):
        common = pages[0][: part.shared // page] if seq else []
        pages.append([*common, *(free.pop() for _ in range(part.own_pages(page)))])
        set_pages(model, seq, 0, pages[seq])
        if part.begin:
            model.feed(0, one[: part.begin], [PREFILL], seq)
    at = len(pages[0])
    for part, own in zip(parts[1:], pages[1:], strict=True):
        set_pages(model, 0, at, own[part.shared // page :])
        at += part.own_pages(page)
    batch, more = packed_prompts(parts, page), [[*own, free[0]] for own in pages]
    check_logits(model, batch, prompts, more, alone)


@pytest.mark.parametrize("name", UNPACKED)
def test_prompts_of_some_models_are_not_packed(name: str) -> None:
    """With recurrent states, or diffusion."""
    assert PACKED_LAST not in load(GOLDEN / f"{name}.F16.gguf", 128, 128, page=16).plan.lists
