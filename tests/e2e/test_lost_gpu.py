"""A GPU that is lost comes back: every answer under way continues where it was, and the text is the same."""

import base64
import json
from collections.abc import Callable, Iterator
from math import inf
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Playwright

from tests.support import browser as browsers
from tests.support.faulty_server import FaultyServer, File, Pause
from tests.support.killed_workers import kill_shared, start_until
from tests.support.openai_client import run, settled
from tests.support.waiting import wait_for
from tools.paths import ROOT
from tools.serve import Server

MODEL = "wisp-mini-q4_0"
SEES = "wisp-mini-sees-q4_0"
PICTURES = ROOT / "tests" / "golden" / "sees"
# Else Chromium refuses WebGPU for a while after the second crash of the GPU process, and ends after some more.
ANY_CRASHES = ("--disable-domain-blocking-for-3d-apis", "--disable-gpu-process-crash-limit")

# Defines `engine`; start(requests), which sends all at once; and `seen`, the tokens of every stream so far.
SET_UP = """async () => {
  const { Wisp } = await import("/wisp.js");
  globalThis.notices = [];
  globalThis.engine = await Wisp.create({
    onLog: (level, text) => level === "notice" && notices.push(text),
    onProgress: ({ stage, loaded }) => stage === "download" && (globalThis.arrived = loaded),
  });
  await engine.load({ model: "wisp-mini-q4_0", backend: "webgpu", tune: false, contextLength: 512 });
  const perform = async (body, i) => {
    if (body.input) return (await engine.embeddings.create(body)).data[0].embedding;
    const texts = {};
    for await (const { choices } of await engine.chat.completions.create({ ...body, stream: true }))
      for (const { index, delta } of choices) {
        const called = (delta.tool_calls ?? []).map((call) => (call.function.name ?? "") + call.function.arguments);
        texts[index] = (texts[index] ?? "") + (delta.content ?? "") + called.join("");
        seen[i]++;
      }
    return texts;
  };
  globalThis.start = (requests) => {
    globalThis.seen = requests.map(() => 0);
    globalThis.answers = Promise.all(requests.map(perform));
    answers.catch(() => {});
  };
}"""
# Returns whether all answers are complete instead.
WAIT_FOR_TOKENS = """
let over = false;
answers.finally(() => (over = true)).catch(() => {});
while (!over && seen.some((n, i) => n < least[i])) await new Promise((resolve) => setTimeout(resolve, 5));
return over;"""


def ask(content: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": content}], "max_tokens": 16, **more}


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}, "old": {"type": "boolean"}}}
REQUESTS = [
    ask("Write a short story about a dragon.", temperature=0, max_tokens=32),  # the loss must come before its end
    ask("Write a short story about a key.", temperature=1, seed=7, n=2),
    ask("Write a short story about a frog.", temperature=0.7, seed=3, frequency_penalty=0.5),
    ask(
        "Name a city as JSON.",
        temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}},
    ),
]
WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
}
REQUESTS += [
    ask(
        "What is the weather in a city?",
        temperature=1,
        seed=5,
        max_tokens=32,
        tools=[{"type": "function", "function": {"name": "weather", "parameters": WEATHER}}],
        tool_choice="required",
    )
]
EMBED = {"model": MODEL, "input": "A dragon.", "encoding_format": "float"}


pytestmark = pytest.mark.lavapipe  # which compiles its kernels again in a second; SwiftShader needs half a minute


@pytest.fixture(scope="module")
def browser(playwright_run: Playwright) -> Iterator[Browser]:
    """A browser of this module's own: its GPU process is ended."""
    started = browsers.launch(playwright_run, "lavapipe-optimized", ANY_CRASHES)
    yield started
    started.close()


@pytest.fixture(scope="module")
def page(browser: Browser, server: Server) -> Page:
    """A page with the model on WebGPU."""
    opened = browsers.new_profile(browser, service_worker=False).new_page()
    opened.set_default_timeout(120_000)
    opened.goto(f"{server.url}tests/blank.html")
    opened.evaluate(SET_UP)
    return opened


@pytest.fixture
def lose_gpu(browser: Browser) -> Callable[[], None]:
    """Ends the GPU process, as a crash of the driver does."""
    session = browser.new_browser_cdp_session()

    def lose() -> None:
        session.send("Browser.crashGpuProcess")

    return lose


LOAD = """
globalThis.arrived = 0;
const asked = { model, name: "again", backend: "webgpu", tune: false, contextLength: 512 };
globalThis.loading = engine.load(asked).then(
  ({ backend, notices }) => ({ backend, notices }), (error) => error.code);"""

USE_AND_UNLOAD = """
const { choices } = await engine.completions.create({ model: "again", prompt: "Once", max_tokens: 2 });
await engine.unload("again");
return choices[0].text;"""


def test_a_load_begins_again(page: Page, lose_gpu: Callable[[], None], bad_server: FaultyServer) -> None:
    """The GPU is lost when half of the model has arrived. What has arrived is not downloaded again."""
    data = (ROOT / "static" / "models" / f"{MODEL}.gguf").read_bytes()
    half = len(data) // 2
    file = bad_server.files["again.gguf"] = File(data, pause=Pause(inf, after=half))
    run(page, LOAD, model=bad_server.url("again.gguf"))
    wait_for(lambda: page.evaluate("arrived") > half / 2)
    lose_gpu()
    file.pause = None
    found = settled(page, "loading")
    assert found["backend"] == "webgpu"
    assert any("was lost during the load" in notice for notice in found["notices"])
    assert file.sent < 1.5 * len(data)
    assert run(page, USE_AND_UNLOAD)


def answers(page: Page, requests: list[dict[str, Any]], lose: Callable[[], None] | None = None) -> Any:
    """The answers to requests that run side by side. `lose` is called when each stream has had some tokens.

    A busy page may see nothing but complete answers: they are asked for again then.
    """
    least = [0 if r.keys() & {"input", "tools"} else 3 for r in requests]  # a busy engine joins chunks
    for _ in range(10):
        run(page, "start(requests)", requests=requests)
        if not lose:
            return run(page, "return answers;")
        if not run(page, WAIT_FOR_TOKENS, least=least):
            lose()
            return run(page, "return answers;")
    raise AssertionError("the page saw ten times nothing but complete answers")


def wait_for_notices(page: Page, count: int) -> None:
    """Wait until the page has so many notices, so that none of them comes in the next test."""
    wait_for(lambda: run(page, "return notices.length;") >= count)


@pytest.fixture(scope="module")
def expected(page: Page) -> Any:
    """The answers to REQUESTS and EMBED on a GPU that stays."""
    return answers(page, [*REQUESTS, EMBED])


def test_an_idle_engine_answers_after_the_loss(page: Page, expected: Any, lose_gpu: Callable[[], None]) -> None:
    run(page, "notices.length = 0;")
    lose_gpu()
    assert answers(page, [REQUESTS[1], EMBED]) == [expected[1], expected[-1]]
    wait_for_notices(page, 1)  # the loss may come after the answers


def test_answers_continue(page: Page, expected: Any, lose_gpu: Callable[[], None]) -> None:
    run(page, "notices.length = 0;")
    assert answers(page, REQUESTS, lose_gpu) == expected[:-1]
    assert all(called["0"].startswith("weather{") for called in expected[-2:-1])
    wait_for_notices(page, 1)
    notices = run(page, "return notices;")
    assert len(notices) == 1
    assert "was lost" in notices[0]
    assert run(page, "return (await engine.stats()).models[0].requests;") == 0


LOAD_WITH_DRAFT = """
const asked = { model: "/repo/static/models/wisp-mini-q4_0.gguf", name: "drafted", draft: "wisp-mini-q4_0" };
await engine.load({ ...asked, default: false, backend: "webgpu", tune: false, contextLength: 512 });"""


def test_a_draft_model_is_loaded_again(page: Page, expected: Any, lose_gpu: Callable[[], None]) -> None:
    """An answer continues with the text of the model alone; it drafts as soon as its kernels are compiled again."""
    run(page, LOAD_WITH_DRAFT)
    run(page, "notices.length = 0;")
    asked = [REQUESTS[0] | {"model": "drafted"}]
    assert answers(page, asked, lose_gpu) == expected[:1]

    def drafted() -> bool:
        assert answers(page, asked) == expected[:1]
        return bool(run(page, 'return (await engine.stats({ model: "drafted" })).totals.model_drafted;'))

    wait_for(drafted)
    run(page, 'await engine.unload("drafted");')
    assert answers(page, [EMBED]) == expected[-1:]  # by the other model, which was lost, too
    wait_for_notices(page, 2)


LOAD_WITH_PROJECTOR = """
await engine.load({ model: "wisp-mini-sees-q4_0", default: false, backend: "webgpu", tune: false });"""


def test_a_projector_is_loaded_again(page: Page, expected: Any, lose_gpu: Callable[[], None]) -> None:
    """Pictures that were not encoded before the loss are encoded after it, for answers side by side."""
    probes = json.loads((PICTURES / "probes.json").read_text(encoding="utf-8"))[:2]
    asked = []
    for probe in probes:
        data = base64.b64encode((PICTURES / probe["picture"]).read_bytes()).decode()
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        content = [picture, {"type": "text", "text": probe["turns"][0][0]}]
        asked.append(
            ask("", temperature=0, max_tokens=48) | {"model": SEES, "messages": [{"role": "user", "content": content}]}
        )
    run(page, LOAD_WITH_PROJECTOR)
    lose_gpu()
    assert answers(page, asked) == [{"0": probe["turns"][0][1]} for probe in probes]
    run(page, 'await engine.unload("wisp-mini-sees-q4_0");')
    assert answers(page, [EMBED]) == expected[-1:]


def test_answers_continue_in_another_worker(browser: Browser, page: Page, expected: Any) -> None:
    run(page, "notices.length = 0;")
    start_until(page, REQUESTS, 8)
    kill_shared(browser)
    assert run(page, "return answers;") == expected[:-1]
    wait_for_notices(page, 1)
    assert len(run(page, "return notices;")) == 1
    assert run(page, "return (await engine.stats()).backend;") == "webgpu"
