"""Stored prefixes on the numpy executor: a later engine reads what an earlier one has computed, bit for bit."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import numpy as np
import pytest

from py_engine.cpu.runner import CpuRunner
from py_engine.engine import Engine
from py_engine.files.stored_blocks import Put, StoredBlock
from py_engine.generate import prefix_store
from py_engine.generate.answer import AnswerLimits, GenerationRequest
from py_engine.plan.sampling import Sampling
from tests.support.cpu_engines import WARM
from tests.support.cpu_models import GOLDEN, load

PAGE = 8
GREEDY = Sampling(temperature=0)
PROMPT = [(7 * i) % 290 + 3 for i in range(45)]
MODELS = ["llama/llama.F32", "gemma/gemma2.F16", "lfm2/lfm2.F16"]  # rows; windows; windows and a short convolution


class Memory:
    """A BlockStore of the layouts that it was opened with."""

    def __init__(self) -> None:
        self.data: dict[str, tuple[StoredBlock, bytes]] = {}
        self.layouts: list[str] = []
        self.full = self.in_use = False
        self.reads = self.tidied = self.removed = 0
        self.touches, self.touched = asyncio.Event(), list[str]()
        self.touches.set()

    def open(self, layout: str) -> "Memory":
        self.layouts.append(layout)
        return self

    async def blocks(self) -> dict[str, StoredBlock]:
        return {key: entry for key, (entry, _) in self.data.items()}

    def changed(self) -> bool:
        return False

    def removals(self) -> int:
        return self.removed

    async def read(self, blocks: Sequence[tuple[str, StoredBlock]]) -> AsyncGenerator[bytes, None]:
        for key, _ in blocks:
            self.reads += 1
            await asyncio.sleep(0)
            if key not in self.data:
                return
            yield self.data[key][1]

    async def put(self, key: str, block: StoredBlock, data: bytes) -> Put:
        if self.full or self.in_use:
            return Put.FULL if self.full else Put.IN_USE
        self.data[key] = block, bytes(data)
        return Put.STORED

    async def touch(self, keys: list[str]) -> None:
        await self.touches.wait()
        self.touched += keys

    async def tidy(self) -> None:
        self.tidied += 1


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefix_store, "IDLE_S", 0.0)
    monkeypatch.setattr(prefix_store.PrefixStore, "_pays", lambda *_: True)


async def engine(store: Memory, model: str = MODELS[0], **options: Any) -> Engine:
    """A new engine, as after a reload of the page."""
    cpu = load(GOLDEN / f"{model}.gguf", options.pop("n_ctx", 256), 16, page=PAGE, **options)
    runner = CpuRunner(cpu.plan)
    runner._cpu = cpu
    used = Engine(cpu.plan, runner, "cpu")
    used.content = model
    await used.persist_prefixes(store.open)
    return used


async def ask(used: Engine, ids: list[int], sampling: Sampling = GREEDY, count: int = 12, **limits: Any) -> list[int]:
    stream = used.generate(GenerationRequest(ids, sampling, AnswerLimits(count, **limits)))
    return [token for batch in [b async for b in stream] for token in batch.ids]


async def stored(used: Engine) -> None:
    """Wait until the engine has stored what it had to store."""
    prefixes = used._generation.prefixes
    assert prefixes is not None
    assert prefixes._writing is not None
    await prefixes._writing


def cached(used: Engine) -> int:
    return used.last.cached_tokens


@pytest.mark.parametrize("model", [*MODELS, "latent/glm-dsa-top9.F16", "latent/deepseek4-top3.F16"])
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "seed"])
async def test_the_next_visit_computes_only_the_end(model: str, sampling: Sampling) -> None:
    store = Memory()
    first = await engine(store, model)
    text = await ask(first, PROMPT, sampling)
    assert cached(first) == 0
    await stored(first)
    assert store.tidied == 1
    later = await engine(store, model)
    assert await ask(later, PROMPT, sampling) == text
    assert cached(later) == 40, "whole blocks before the last token"
    assert later.stats()["prefixes"]["read_tokens"] == 40
    longer = [*PROMPT, *text, 9, 11]
    fresh = await ask(await engine(Memory(), model), longer, sampling)
    assert await ask(await engine(store, model), longer, sampling) == fresh


@pytest.mark.parametrize("model", [*MODELS[1:], "latent/deepseek4-yarn.F16"])
async def test_windows_need_only_their_last_pages(model: str) -> None:
    """Pages before a window are freed while the prompt is read; they are not stored, and not missed."""
    store, prompt = Memory(), [(7 * i) % 290 + 3 for i in range(700)]
    first = await engine(store, model, n_ctx=768)
    text = await ask(first, prompt, WARM)
    windows = [group for group in first.plan.page_groups if group.window]
    assert windows
    await stored(first)
    bits = {entry.groups for entry, _ in store.data.values()}
    assert len(bits) > 1, "some blocks lack a window's page"
    later = await engine(store, model, n_ctx=768)
    assert await ask(later, prompt, WARM) == text
    assert cached(later) == 696
    shorter = await engine(store, model, n_ctx=768)
    assert await ask(shorter, [*prompt[:200], 9], WARM) == await ask(
        await engine(Memory(), model, n_ctx=768), [*prompt[:200], 9], WARM
    )


@pytest.mark.parametrize("kv_type", ["f16", "f32", "q8_0"])
async def test_what_is_read_is_bit_equal(kv_type: str) -> None:
    store = Memory()
    first = await engine(store, kv_type=kv_type)
    await ask(first, PROMPT)
    await stored(first)
    later = await engine(store, kv_type=kv_type)
    await ask(later, PROMPT, count=1)
    assert cached(later) == 40
    for name in first.plan.page_groups[0].caches:
        mine, theirs = (_rows(used, name, 40) for used in (first, later))
        np.testing.assert_array_equal(mine, theirs)


def _rows(used: Engine, name: str, n: int) -> Any:
    """The first n rows of the newest prompt in a cache, as bytes."""
    blocks, found = used._generation.sequences.cache.find(PROMPT[:n])
    assert found == n
    cpu: Any = used.runner
    pages = [block.pages[0] for block in blocks]
    return np.concatenate([cpu._cpu._page(name, page).reshape(-1).view(np.uint8) for page in pages])


async def test_another_prompt_shares_its_beginning() -> None:
    store = Memory()
    first = await engine(store)
    await ask(first, PROMPT)
    await stored(first)
    later = await engine(store)
    other = [*PROMPT[:20], 250, *PROMPT[21:]]
    assert await ask(later, other) == await ask(await engine(Memory()), other)
    assert later.stats()["prefixes"]["read_tokens"] == 16


async def test_a_seeded_answer_reads_no_decoded_positions() -> None:
    """Decoded tokens round differently from a prompt's; the text must not depend on the store."""
    store = Memory()
    first = await engine(store)
    text = await ask(first, PROMPT[:20], count=30)
    await stored(first)
    later, longer = await engine(store), [*PROMPT[:20], *text]
    assert await ask(later, longer, WARM) == await ask(await engine(Memory()), longer, WARM)
    assert later.stats()["prefixes"]["read_tokens"] == 16
    again = await engine(store)
    await ask(again, longer)
    assert again.stats()["prefixes"]["read_tokens"] == 48


async def test_a_better_block_replaces_a_stored_one() -> None:
    """One that was computed as a prompt is of use to seeded answers, too."""
    store = Memory()
    first = await engine(store)
    text = await ask(first, PROMPT[:20], count=30)
    await stored(first)
    second, longer = await engine(store), [*PROMPT[:20], *text]
    await ask(second, longer, WARM)
    await stored(second)
    later = await engine(store)
    await ask(later, longer, WARM)
    assert later.stats()["prefixes"]["read_tokens"] == 48


async def test_storing_does_not_make_first_blocks_the_next_to_be_evicted() -> None:
    """Without its first block, nothing of a chat is of use."""
    used = await engine(Memory())
    await ask(used, PROMPT)
    await stored(used)
    cache = used._generation.sequences.cache
    first, last = ({id(block): depth for depth, block in cache.full_blocks()}[id(cache.pools[0].evict())] for _ in "ab")
    assert first > last > 0


async def test_private_requests_leave_nothing() -> None:
    store = Memory()
    used = await engine(store)
    await ask(used, PROMPT, private=True)
    await stored(used)
    assert not store.data
    await ask(used, PROMPT[:40])
    await stored(used)
    assert not store.data, "it has reused private blocks"
    await ask(used, [4, *PROMPT])
    await stored(used)
    assert store.data


async def test_prefixes_of_other_scales_of_adapters_are_not_read() -> None:
    """Those without any are of use to requests without any only."""
    store, model = Memory(), "llama/llama.Q4_K_M"
    adapters = [GOLDEN / "lora" / f"lora-llama.Q4_K_M.{part}.gguf" for part in "abc"]
    half, off = (0.5, 0.0, 0.0), (0.0, 0.0, 0.0)
    first = await engine(store, model, adapters=adapters)
    texts = {}
    for scales in (half, off):
        first.scales = scales
        texts[scales] = await ask(first, PROMPT)
        await stored(first)
    assert texts[half] != texts[off]
    for scales, read in ((half, 40), (off, 40), ((0.5, 0.1, 0.0), 0)):
        later = await engine(store, model, adapters=adapters)
        later.scales = scales
        text = await ask(later, PROMPT)
        assert later.stats()["prefixes"]["read_tokens"] == read
        assert text == texts.get(scales, text)


async def test_missing_and_damaged_blocks_are_computed() -> None:
    """A store returns None for a block that is damaged. Others before it are still of use."""
    store = Memory()
    first = await engine(store)
    text = await ask(first, PROMPT)
    await stored(first)
    third = next(key for key, (entry, _) in store.data.items() if entry.depth == 2)
    later = await engine(store)
    del store.data[third]
    assert await ask(later, PROMPT) == text
    assert cached(later) == 16
    assert later._generation.sequences.cache.pools[0].held == 0


async def test_a_full_storage_is_no_error() -> None:
    store = Memory()
    store.full = True
    used = await engine(store)
    text = await ask(used, PROMPT)
    await stored(used)
    assert await ask(used, PROMPT) == text
    assert not store.data


async def test_blocks_that_another_worker_uses_are_stored_later() -> None:
    store = Memory()
    store.in_use = True
    used = await engine(store)
    await ask(used, PROMPT)
    await stored(used)
    assert used.stats()["prefixes"]["written_tokens"] == 0
    store.in_use = False
    await ask(used, PROMPT)
    await stored(used)
    assert used.stats()["prefixes"]["written_tokens"] == PAGE * len(store.data) > 0


async def test_only_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(prefix_store, "IDLE_S", 0.0)
    for ms, pays in [(1e-6, False), (10.0, True)]:
        store = Memory()
        used = await engine(store)
        monkeypatch.setattr(used.runner, "prompt_token_ms", lambda ms=ms: ms)
        await ask(used, PROMPT)
        await stored(used)
        assert bool(store.data) == pays


async def test_layouts_differ_where_blocks_do() -> None:
    store = Memory()
    for options in [{}, {"kv_type": "f16"}, {"n_ctx": 128}, {"model": MODELS[1]}]:
        await engine(store, **options)  # type: ignore[arg-type]
    await engine(store)
    assert len(set(store.layouts)) == 4


async def test_many_requests_at_once_read_and_evict() -> None:
    """Few pages: what is read evicts what others have left, and no page is lost."""
    store = Memory()
    prompts = [[n, *PROMPT] for n in range(3, 9)]
    want = [await ask(await engine(Memory()), ids) for ids in prompts]
    first = await engine(store)
    for ids in prompts:
        await ask(first, ids)
        await stored(first)
    for round_ in range(2):
        used = await engine(store)
        got = await asyncio.gather(*(ask(used, ids) for ids in prompts))
        assert got == want
        pools = used._generation.sequences.cache.pools
        assert [pool.held for pool in pools] == [0] * len(pools)
        assert round_ or used.stats()["prefixes"]["read_tokens"] >= 40


async def test_what_the_user_removed_is_not_stored_again() -> None:
    """Neither what the caches have at that time, nor what goes on from it; other prompts are."""
    store, other = Memory(), [9, *PROMPT]
    used = await engine(store)
    text = await ask(used, PROMPT)
    await stored(used)
    assert store.data
    store.data.clear()
    store.removed += 1
    await ask(used, [*PROMPT, *text, 9, 11])
    await stored(used)
    assert not store.data
    await ask(used, other)
    await stored(used)
    later = await engine(store)
    await ask(later, other)
    assert cached(later) > 0
    await ask(later, PROMPT)
    assert cached(later) == 0


async def test_a_removal_while_pages_are_read_drops_them(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Memory()
    used = await engine(store)
    runner: Any = used.runner
    read_pages = runner.read_pages

    async def removing(pages: Any) -> Any:
        data = await read_pages(pages)
        store.removed += 1
        return data

    monkeypatch.setattr(runner, "read_pages", removing)
    await ask(used, PROMPT)
    await stored(used)
    assert store.removed == 1
    assert not store.data


async def test_an_answer_does_not_wait_for_the_note_of_what_it_used() -> None:
    store = Memory()
    first = await engine(store)
    text = await ask(first, PROMPT)
    await stored(first)
    store.touches.clear()
    later = await engine(store)
    assert await asyncio.wait_for(ask(later, PROMPT), 60) == text
    assert cached(later) > 0
    assert not store.touched
    store.touches.set()
    await asyncio.sleep(0)
    assert set(store.touched) <= set(store.data)
    assert len(store.touched) == cached(later) // PAGE
