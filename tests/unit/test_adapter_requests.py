"""How long an adapter is waited for: a browser that starts may answer that there is none, as may one after a crash."""

from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator

# Requests the adapter of a browser that gives the answers `a` in turn, then the last one again. Time passes by itself.
REQUEST = """
  let now = 0, asked = 0;
  Object.defineProperty(globalThis, "performance", { value: { now: () => now } });
  globalThis.setTimeout = (then, ms) => { now += ms; queueMicrotask(then); };
  const gpu = { requestAdapter: async () => a[0][Math.min(asked++, a[0].length - 1)] };
  Object.defineProperty(globalThis, "navigator", { value: a[1] ? { gpu } : {}, configurable: true });
  const found = [];
  for (const pause of a[2]) {
    now += pause;
    const before = [now, asked];
    found.push({ adapter: await m.requestAdapter(a[3]), ms: now - before[0], asked: asked - before[1] });
  }
  return found;
"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("adapter"), ["py_engine/gpu/adapter.js"])


def requests(
    evaluate: Evaluate, answers: list[Any], pauses: list[int], *, webgpu: bool = True, least_ms: int = 0
) -> list[dict[str, Any]]:
    """What each request finds, the milliseconds that it takes, and how often it asks the browser."""
    found: list[dict[str, Any]] = evaluate(f"(async () => {{ {REQUEST} }})()", answers, webgpu, pauses, least_ms)
    return found


def test_a_browser_that_starts_is_asked_again(evaluate: Evaluate) -> None:
    (found,) = requests(evaluate, [None, None, "adapter"], [0])
    assert (found["adapter"], found["asked"]) == ("adapter", 3)


def test_without_a_gpu_only_the_first_second_is_waited(evaluate: Evaluate) -> None:
    first, *later = requests(evaluate, [None], [0, 500, 9000])
    assert first["adapter"] is None
    assert first["ms"] == 1000
    assert later == [{"adapter": None, "ms": 0, "asked": 1}] * 2


def test_a_gpu_that_was_there_is_waited_for_longer(evaluate: Evaluate) -> None:
    answers: list[Any] = ["adapter", *[None] * 15, "again", None]
    first, restarted, absent, later = requests(evaluate, answers, [0, 60_000, 0, 0])
    assert (first["adapter"], first["ms"]) == ("adapter", 0)
    assert (restarted["adapter"], restarted["ms"]) == ("again", 1500)
    assert (absent["adapter"], absent["ms"]) == (None, 2000)
    assert (later["adapter"], later["ms"]) == (None, 0)


def test_a_load_that_needs_a_gpu_waits_for_it_itself(evaluate: Evaluate) -> None:
    _, late = requests(evaluate, [*[None] * 25, "adapter"], [0, 0], least_ms=2000)
    assert (late["adapter"], late["ms"]) == ("adapter", 400)


def test_no_webgpu(evaluate: Evaluate) -> None:
    assert requests(evaluate, [None], [0], webgpu=False) == [{"adapter": None, "ms": 0, "asked": 0}]
