"""The monitor on the real page, and its figures and warnings from given counters."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.browser import new_profile, watch
from tests.support.chat_page import ask, last_answer, open_page, send, wait_answer
from tests.support.openai_client import bundle
from tests.support.page_looks import faults
from tools.paths import ROOT
from tools.serve import Server

# Answers until `end`: an answer of the embedded model is over before the monitor looks.
KEEP_BUSY = """async () => {
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create();
  globalThis.end = Infinity;
  const answer = () => engine.completions.create({ prompt: "Once upon a time", max_tokens: 200, temperature: 1 });
  globalThis.busy = (async () => {
    while (performance.now() < globalThis.end) await answer();
  })();
}"""
PARTS = ROOT / "tests" / "support" / "monitor_parts.js"


@pytest.fixture(scope="module")
def opened(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[tuple[Page, list[str]]]:
    context = new_profile(chromium(None), service_worker=False, accept_downloads=True)
    page = open_page(context, server.url)
    yield page, watch(page)
    context.close()


@pytest.fixture
def page(opened: tuple[Page, list[str]]) -> Iterator[Page]:
    page, errors = opened
    errors.clear()
    yield page
    assert not errors


def figure(monitor: Locator, title: str) -> Locator:
    """The newest value of a plot."""
    return monitor.locator(".figure", has_text=re.compile(f"^{title}")).locator("strong")


def test_the_monitor_shows_an_answer_s_figures(page: Page) -> None:
    page.get_by_role("button", name="Monitor").click()
    monitor = page.get_by_role("complementary", name="Monitor")
    expect(monitor.get_by_role("button", name="Close the monitor")).to_be_focused()
    expect(monitor).to_contain_text("No request runs.")
    nothing = monitor.locator(".figure", has=page.locator(".plot-none:visible"))
    expect(nothing.locator("h3")).to_have_text(
        ["Time to the first token", "Prompt tokens per second", "Prompt tokens from the cache"]
    )
    assert nothing.locator("canvas").count() == 0
    page.evaluate(KEEP_BUSY)
    send(page, "Write a short story about a dragon named Ember who finds a silver key.")
    expect(monitor.get_by_text("Request 1")).to_be_visible()
    expect(figure(monitor, "Tokens per second")).to_have_text(re.compile("[1-9]"))
    wait_answer(page)
    page.evaluate("() => void (globalThis.end = 0)")  # further answers would take the pages that the next prompt reuses
    expect(monitor).to_contain_text("No request runs.")
    expect(figure(monitor, "Time to the first token")).to_have_text(re.compile(r"\d m?s$"))
    ask(page, "And then?")
    expect(figure(monitor, "Prompt tokens from the cache")).to_have_text(re.compile(r"[1-9]\d?%"))
    # Short prompts have no speed.
    assert {*nothing.locator("h3").all_inner_texts()} <= {"Prompt tokens per second"}
    assert monitor.locator("canvas").count() == 6 - nothing.count()
    expect(monitor.locator(".meter", has_text="Weights")).to_contain_text("MB")
    expect(monitor.locator(".reactions")).to_contain_text("No GPU here")
    monitor.get_by_role("button", name="Measure a token").click()
    expect(monitor.locator(".kernel-table")).to_contain_text("attention_decode")


def test_it_fits_every_screen(page: Page, tmp_path: Path) -> None:
    for (width, height), scheme in (((390, 844), "dark"), ((1280, 800), "light")):
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")  # type: ignore[arg-type]
        page.screenshot(path=tmp_path / f"{width}.png")
        assert faults(page) == []


def test_its_history_is_saved_as_json_lines(page: Page) -> None:
    with page.expect_download() as saving:
        page.get_by_role("button", name="Save as JSON lines").click()
    lines = [json.loads(line) for line in Path(saving.value.path()).read_text(encoding="utf-8").splitlines()]
    assert len(lines) >= 3
    assert lines == sorted(lines, key=lambda sample: sample["time"])
    assert lines[-1]["model"] == "wisp-mini-q4_0"
    assert max(sample["tokens_per_second"] for sample in lines) > 0
    assert lines[-1]["requests"] >= 2
    assert 0 < lines[-1]["used"] < lines[-1]["budget"]


def test_it_closes_by_keyboard_and_asks_no_more(page: Page) -> None:
    monitor = page.get_by_role("complementary", name="Monitor")
    monitor.get_by_role("button", name="Close the monitor").focus()
    page.keyboard.press("Escape")
    expect(monitor).to_be_hidden()
    expect(page.get_by_role("button", name="Monitor")).to_be_focused()
    assert "Rome" in ask(page, "What is the capital of Italy?")
    expect(last_answer(page).locator(".stats")).to_contain_text("tokens/s")


def stats(requests: int, **fields: Any) -> dict[str, Any]:
    """What stats() says after some requests of 100 prompt tokens and 50 generated ones."""
    totals = {"requests": requests, "prompt_tokens": 100 * requests, "completion_tokens": 50 * requests,
              "cached_tokens": 90 * requests, "draft_steps": 10, "draft_tokens": 25}  # fmt: skip
    last = {"prompt_tokens": 100, "cached_tokens": 0, "completion_tokens": 51, "prefill_ms": 200, "decode_ms": 1000}
    return {"model": "m", "totals": totals, "last": last, "memory": {"weights": 5, "wasm_heap": 7}, "bytes": 5,
            "budget": 100, "context_length": 64, "notices": [], "sequences": [], **fields}  # fmt: skip


def samples(page: Page, readings: list[dict[str, Any]]) -> dict[str, Any]:
    """The last sample of these readings, one a second, and the warnings then."""
    found: dict[str, Any] = page.evaluate(
        """async ([script, readings]) => {
            const { sampleOf, warningsOf } = await import(script);
            const entries = [];
            for (const [i, stats] of readings.entries())
                entries.push({ sample: sampleOf(stats, entries, null, 1000 * i), totals: stats.totals });
            const samples = entries.map(({ sample }) => sample);
            return { ...samples.at(-1), warnings: warningsOf(samples).map(String) };
        }""",
        [bundle("monitor", PARTS), readings],
    )
    return found


DRAWN = """async ([script, rows]) => {
  const { Plot } = await import(script);
  const plot = new Plot({ title: "x", values: ({ value }) => [value], format: String, text: () => "" });
  document.body.append(plot.element);
  const place = plot.element.querySelector(".plot");
  place.style.cssText = "width: 300px; height: 96px; color: rgb(0 0 0); outline-color: rgb(255 0 0)";
  const before = place.innerText;
  const samples = rows.map((value, i) => ({ time: 1000 * i, value }));
  for (const i of samples.keys()) plot.show(samples.slice(0, i + 1));
  await new Promise(requestAnimationFrame).then(() => new Promise(requestAnimationFrame));
  const canvas = place.querySelector("canvas");
  const pixels = canvas?.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data ?? [];
  const red = pixels.filter((value, at) => at % 4 === 0 && value > 200 && !pixels[at + 1] && pixels[at + 3] > 200);
  const found = [before, place.innerText, red.length > 0];
  plot.element.remove();
  return found;
}"""


@pytest.mark.parametrize(
    ("rows", "says", "draws"),
    [([None, None], "Nothing yet.", False), ([5], "", True), ([None, 5, None], "", True), ([5, 6], "", True)],
)
def test_a_plot_says_that_it_is_empty_and_draws_its_first_value(
    page: Page, rows: list[int | None], says: str, draws: bool
) -> None:
    """A line needs two values; one is a point."""
    assert page.evaluate(DRAWN, [bundle("monitor", PARTS), rows]) == ["Nothing yet.", says, draws]


def test_figures_come_from_counters(page: Page) -> None:
    last = samples(page, [stats(1), stats(2)])
    assert last["tokens_per_second"] == 50
    assert last["token_ms"] == 20
    assert last["first_token_ms"] == 200
    assert last["prompt_tokens_per_second"] == 500
    assert last["tokens_per_draft_step"] == 2.5
    assert last["cache_hit_rate"] == 0.9
    assert (last["memory"], last["heap"], last["warnings"]) == ({"weights": 5}, 7, [])
    again = samples(page, [stats(9), stats(1)])  # loaded again: the counters began again
    assert again["tokens_per_second"] == 0


def test_warnings_come_in_time(page: Page) -> None:
    assert "80% of the memory budget" in samples(page, [stats(1, bytes=80)])["warnings"][0]
    assert samples(page, [stats(1, bytes=79)])["warnings"] == []
    slow = {**stats(4)["last"], "decode_ms": 2100}
    found = samples(page, [stats(1), stats(2), stats(3), stats(4, last=slow)])["warnings"]
    assert ["A token takes 42 ms, usually 20 ms" in text for text in found] == [True]
    assert samples(page, [stats(1), stats(2), stats(3, last=slow)])["warnings"] == []  # nothing is usual yet
    totals = {**stats(9)["totals"], "cached_tokens": 100}
    assert (
        "of the prompts' tokens came from the cache"
        in samples(page, [stats(1), stats(9, totals=totals)])["warnings"][0]
    )
    waits = samples(page, [stats(1, sequences=[{"number": 0, "tokens": 9, "waits": 1}])])["warnings"]
    assert "1 of 1 requests wait" in waits[0]
