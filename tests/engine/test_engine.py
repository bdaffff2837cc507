"""What an engine keeps from one request to the next, and what becomes of it when something goes wrong."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.engine.driver import run

MODEL = "/repo/static/models/wisp-mini-q4_0.gguf"


@pytest.mark.lavapipe
def test_requests_one_after_the_other(engine_pages: Callable[[str | None], Page]) -> None:
    """Equal seeds give equal text, an abort leaves nothing behind, and only what is new is computed."""
    out = run(
        engine_pages("lavapipe"),
        MODEL,
        """
prompt = list(range(100, 140))
greedy, warm = Sampling(temperature=0), Sampling(temperature=1, top_k=40, top_p=0.95, min_p=0.02, seed=7)
first = await collect(engine, prompt, greedy, 24)
sampled = [await collect(engine, prompt, warm, 24) for _ in range(2)]
other = await collect(engine, prompt, Sampling(temperature=1, seed=8), 24)
stream = engine.generate([1, 2, 3] + prompt, warm, 200, frozenset())
taken = 0
async for batch in stream:
    taken += len(batch.ids)
    if taken >= 3:
        break
await stream.aclose()
again = await collect(engine, prompt, greedy, 24)
longer = await collect(engine, prompt + first[:10] + [5, 6], greedy, 4)
last = engine.stats()["last"]
submits = engine.stats()["submits_per_token"]
return {"first": first, "sampled": sampled, "other": other, "taken": taken, "again": again, "last": last,
        "submits": submits, "longer": len(longer)}
""",
        backend="webgpu",
    )
    assert out["again"] == out["first"]
    assert out["sampled"][0] == out["sampled"][1]
    assert out["sampled"][0] != out["other"]
    assert 3 <= out["taken"] < 100
    assert out["last"]["prompt_tokens"] == 52
    assert out["last"]["cached_tokens"] == 50, "only the two new tokens are computed"
    assert out["longer"] == 4


def test_a_stop_token_ends_the_answer(engine_pages: Callable[[str | None], Page]) -> None:
    out = run(
        engine_pages("swiftshader"),
        MODEL,
        """
prompt, greedy = list(range(100, 110)), Sampling(temperature=0)
whole = await collect(engine, prompt, greedy, 12)
return whole, await collect(engine, prompt, greedy, 12, frozenset([whole[4]]))
""",
        backend="cpu",
    )
    whole, stopped = out
    assert stopped == whole[: whole.index(whole[4]) + 1]


@pytest.mark.lavapipe
def test_a_device_that_is_too_small_or_lost(engine_pages: Callable[[str | None], Page]) -> None:
    """Each is an error of its own; the model loaded before goes on answering."""
    out = run(
        engine_pages("lavapipe"),
        MODEL,
        """
codes = []
try:
    await Engine.load(sources[0], headers[0], LoadOptions(64, "webgpu", variant={"max_buffer": 1 << 18}))
except WispError as error:
    codes.append(error.code)
before = await collect(engine, [1, 2, 3], Sampling(temperature=0), 4)
engine.runner.gpu.device.destroy()
try:
    await collect(engine, [1, 2, 3, 4], Sampling(temperature=0), 4)
except WispError as error:
    codes.append(error.code)
return codes, len(before)
""",
        backend="webgpu",
    )
    assert out == [["model_too_large", "device_lost"], 4]


def test_profile_compares_every_dispatch_with_the_device(engine_pages: Callable[[str | None], Page]) -> None:
    """Time, bytes and the least time for them, of a token and of a batch."""
    out = run(
        engine_pages("swiftshader"),
        "/repo/tests/golden/llama/llama.Q4_0.gguf",
        """
return {"decode": await engine.profile(5), "prefill": await engine.profile(0, 16),
        "rates": engine.stats()["read_rates"],
        "count": len(engine.plan.lists[DECODE]) + len(engine.plan.lists[SAMPLE])}
""",
        backend="webgpu",
        context_length=128,
    )
    assert len(out["decode"]) == out["count"] + 1
    for entries in (out["decode"], out["prefill"]):
        assert all(e["ns"] > 0 and e["bytes"] > 0 and e["floor_ns"] > 0 for e in entries)
        assert entries[-1]["bytes"] == sum(e["bytes"] for e in entries[:-1])
    sizes, times = zip(*out["rates"], strict=True)
    assert list(sizes) == sorted(sizes)
    assert max(sizes) >= 1 << 20
    assert times[-1] > times[0] > 0
