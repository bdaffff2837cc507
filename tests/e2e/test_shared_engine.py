"""Tabs that share one engine: it is in memory once, answers reach the right tab, and crashes end what they must."""

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright
from playwright.sync_api import Error as PlaywrightError

from tests.support import browser as browsers
from tests.support.killed_workers import kill_shared
from tests.support.openai_client import open_client_page, run, settled
from tests.support.waiting import HANG_S, wait_for
from tools.selection import fewer
from tools.serve import Handler, Server

CHAT, BERT, LLAMA = "wisp-mini-q4_0", "bert.F16", "llama.F16"
STORY = "Write a short story about a dragon named Ember who finds a silver key."

# Defines `engine`, and perform(request), which returns the part of an answer that tests compare.
ENGINE = """async ([backend, model]) => {
  const { Wisp } = await import("/wisp.js");
  globalThis.Wisp = Wisp;
  globalThis.engine = await Wisp.create();
  await engine.load({ model: "/repo/tests/golden/embedding/bert.F16.gguf", backend });
  await engine.load({ model, backend });
  const textOf = (chunks) => chunks.map((c) => c.choices[0]?.delta?.content ?? "").join("");
  globalThis.perform = async ({ kind, http, body }) => {
    const api = http ? openai : engine;
    if (kind === "tokenize") return engine.tokenize(body.text, { model: body.model });
    if (kind === "embed") {
      const { model, data } = await api.embeddings.create({ encoding_format: "float", ...body });
      return [model, ...data.map(({ embedding }) => embedding)];
    }
    if (kind === "complete") {
      const { model, choices: [{ text }] } = await api.completions.create(body);
      return [model, text];
    }
    if (kind === "chat") {
      const { model, choices: [{ message }] } = await api.chat.completions.create(body);
      return [model, message.content];
    }
    const chunks = [];
    for await (const chunk of await api.chat.completions.create({ ...body, stream: true })) {
      chunks.push(chunk);
      if (kind === "abort" && chunks.length === 4) break;
    }
    return [chunks[0].model, textOf(chunks), new Set(chunks.map(({ id }) => id)).size];
  };
}"""


@pytest.fixture(scope="module")
def browser(playwright_run: Playwright) -> Iterator[Browser]:
    """A browser without WebGPU for this module alone: tests crash its tabs."""
    started = browsers.launch(playwright_run, None)
    yield started
    started.close()


@pytest.fixture(scope="module")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """The profile that most tests here share, so that Python starts once for all of them."""
    made = browsers.new_profile(browser)
    yield made
    made.close()


@pytest.fixture(scope="module")
def tabs(context: BrowserContext, server: Server) -> Callable[[int], list[Page]]:
    """tabs(n) -> n tabs with the engine and both models. Replaces tabs that a test closed or broke."""
    opened: list[Page] = []

    def get(count: int) -> list[Page]:
        opened[:] = [page for page in opened if page.url.startswith("http") and not page.is_closed()]
        opened.extend(open_client_page(context, server) for _ in range(count - len(opened)))
        for page in opened:
            page.evaluate(ENGINE, ["cpu", CHAT])  # does nothing where the engine and the models are there
        return opened[:count]

    return get


def workers(context: BrowserContext) -> Counter[str]:
    """Count the workers of a profile by kind: `shared_worker` runs Python, each `worker` computes for it."""
    here = context.new_cdp_session(context.pages[0]).send("Target.getTargetInfo")["targetInfo"]["browserContextId"]
    assert context.browser
    found = context.browser.new_browser_cdp_session().send("Target.getTargets")["targetInfos"]
    return Counter(t["type"] for t in found if t.get("browserContextId") == here and t["type"].endswith("worker"))


def test_a_second_tab_needs_no_second_engine(browser: Browser, server: Server) -> None:
    """A further tab has no Python and no weights: it starts no worker, and the engine takes no more memory."""
    context = browsers.new_profile(browser, service_worker=False)
    first, *others = (context.new_page() for _ in range(3))
    for page in (first, *others):
        page.goto(f"{server.url}tests/blank.html")
    first.evaluate(ENGINE, ["cpu", CHAT])
    started = workers(context)
    assert started["shared_worker"] == 1
    own = run(first, "return engine.stats();")
    assert own["clients"] == 1
    assert own["bytes"] == sum(m["bytes"] for m in own["models"]) > 4e6
    for page in others:
        page.evaluate(ENGINE, ["cpu", CHAT])
    shared = run(others[-1], "return engine.stats();")
    assert (shared["clients"], shared["bytes"]) == (3, own["bytes"])
    assert shared["timings"]["boot_ms"] == own["timings"]["boot_ms"]
    assert workers(context) == started
    context.close()


class SlowHandler(Handler):
    """Holds the script of the engine's worker back until `arrives` is set."""

    arrives = threading.Event()

    def do_GET(self) -> None:
        if self.path.startswith("/assets/worker-"):
            self.arrives.wait(HANG_S)
        super().do_GET()


class SlowServer(Server):
    """A server of dist/ for test_pages_share_an_engine_that_starts_slowly."""

    handler = SlowHandler


# Lists the shared workers that a page starts in `made`.
LIST_WORKERS = """globalThis.made = [];
globalThis.SharedWorker = class extends SharedWorker {
  constructor(url, options) {
    super(url, options);
    made.push(options.name);
  }
};"""
CLIENTS = """async () => {
  const { Wisp } = await import("/wisp.js");
  globalThis.engine = await Wisp.create();
  return (await engine.stats()).clients;
}"""


def test_pages_share_an_engine_that_starts_slowly(browser: Browser, dist: Path) -> None:
    """A slow network or processor takes so long that a page starts further workers: one of them stays."""
    server = SlowServer(dist, 0).start()
    context = browsers.new_profile(browser, service_worker=False)
    context.add_init_script(LIST_WORKERS)
    first, second = (context.new_page() for _ in range(2))
    for page in (first, second):
        page.goto(f"{server.url}manifest.webmanifest")
    first.evaluate(f"() => void (globalThis.clients = ({CLIENTS})())")
    wait_for(lambda: first.evaluate("new Set(made).size") >= 3)
    SlowHandler.arrives.set()
    assert first.evaluate("clients") == 1
    assert second.evaluate(CLIENTS) == 2
    wait_for(lambda: workers(context)["shared_worker"] == 1)
    assert [run(page, "return (await engine.stats()).clients;") for page in (first, second)] == [2, 2]
    context.close()
    server.shutdown()
    server.server_close()


def requests() -> list[dict[str, Any]]:
    """Fifty requests of many kinds, half of them over HTTP."""
    names = ["Italy", "France", "Spain", "Japan", "Egypt", "Norway", "Peru"]
    form = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": {"enum": ["yes", "no"]}}}
    made = []
    for i in range(50):
        question = f"What is the capital of {names[i % 7]}?"
        chat = {"model": CHAT, "temperature": 0, "max_tokens": 6, "messages": [{"role": "user", "content": question}]}
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("stream", chat),
            ("embed", {"model": BERT, "input": [question, "another text"]}),
            ("chat", chat | {"response_format": form}),
            ("tokenize", {"model": BERT if i % 2 else CHAT, "text": question}),
            ("chat", chat),
            ("abort", chat | {"max_tokens": 60, "messages": [{"role": "user", "content": STORY}]}),
            ("embed", {"model": CHAT, "input": question}),
        ]
        kind, body = kinds[i % 7 if i % 3 else (i // 3) % 7]
        made.append({"kind": kind, "http": i % 2 == 1, "body": body})
    return made


def wait_for_requests(page: Page, counts: list[int]) -> None:
    """Wait until each model has so many open requests."""
    wait_for(lambda: run(page, "return (await engine.stats()).models.map((m) => m.requests);") == counts)


def check_mixed(first: Page, second: Page, asked: list[dict[str, Any]]) -> None:
    """Assert that each answer is the one that its request gets alone, in either tab, beside any other request."""
    keys = [json.dumps((one["kind"], one["body"])) for one in asked]
    each = dict(zip(keys, asked, strict=True))
    one_by_one = "const all = []; for (const one of each) all.push(await perform(one)); return all;"
    found = dict(zip(each, run(first, one_by_one, each=[*each.values()]), strict=True))
    half = len(asked) // 2
    start = "globalThis.under_way = Promise.all(asked.map(perform));"
    run(first, start, asked=asked[:half])
    run(second, start, asked=asked[half:])
    concurrent = [*run(first, "return under_way;"), *run(second, "return under_way;")]
    for key, request, got in zip(keys, asked, concurrent, strict=True):
        expected = found[key]
        if request["kind"] == "abort":  # a chunk more or less
            assert got[0] == expected[0]
            assert got[2] == 1
            assert got[1]
            assert got[1].startswith(expected[1]) or expected[1].startswith(got[1])
        else:
            assert got == expected, request
    wait_for_requests(second, [0, 0])  # aborted ones end a little later


def test_fifty_mixed_requests_from_two_tabs_on_two_models(tabs: Callable[[int], list[Page]]) -> None:
    first, second = tabs(2)
    asked = requests()
    assert {(r["kind"], r["http"]) for r in asked} >= {
        (k, h) for k in ("stream", "embed", "chat") for h in (True, False)
    }
    check_mixed(first, second, asked)
    stats = run(second, "return engine.stats();")
    assert {m["id"] for m in stats["models"]} == {CHAT, BERT}
    assert stats["clients"] == 2


@pytest.mark.lavapipe
def test_two_models_on_webgpu_from_two_tabs(chromium: Callable[[str | None], Browser], server: Server) -> None:
    context = browsers.new_profile(chromium("lavapipe"))
    first, second = (open_client_page(context, server) for _ in range(2))
    for page in (first, second):
        page.evaluate(ENGINE, ["webgpu", f"/repo/tests/golden/llama/{LLAMA}.gguf"])
    stats = run(second, "return engine.stats();")
    assert [(m["id"], m["backend"]) for m in stats["models"]] == [(BERT, "webgpu"), (LLAMA, "webgpu")]
    assert stats["clients"] == 2
    assert "shader-f16" in stats["adapter"]["features"]
    asked = []
    for i, text in enumerate(["Hello", "world", "a silver key", "2 + 2"] * 3):
        complete = {"model": LLAMA, "prompt": text, "max_tokens": 6, "temperature": 0}
        kinds = [("complete", complete), ("embed", {"model": BERT, "input": text})]
        kind, body = kinds[i % 3 == 0]
        asked.append({"kind": kind, "http": i % 2 == 1, "body": body})
    check_mixed(first, second, asked)
    context.close()


# Streams of a long story, over HTTP and from the engine: how each ended, when it has.
STREAMS = """
  const body = { ...ask(story), stream: true, max_tokens: tokens, logit_bias: { [end]: -100 } };
  globalThis.begun = [0, 0];
  globalThis.cuts = [openai, engine].map(async ({ chat }, i) => {
    try { for await (const chunk of await chat.completions.create(body)) begun[i]++; return "whole"; }
    catch (error) { return error.code ?? `${error}`; }
  });
  while (waiting && !begun.some((count) => count > 2)) await new Promise((resolve) => setTimeout(resolve, 5));
"""
ANSWER = (
    "return (await openai.chat.completions.create(ask('What is the capital of Italy?'))).choices[0].message.content;"
)


def start_streams(page: Page, tokens: int, *, waiting: bool = True) -> None:
    """Start two streams; with `waiting`, return after a few chunks."""
    end = run(page, "return (await engine.tokenize('<|im_end|>', { parseSpecial: true })).at(-1);")
    run(page, STREAMS, story=STORY, end=end, tokens=tokens, waiting=waiting)


def ended(page: Page) -> list[str]:
    """Return how each stream ended."""
    outcome: list[str] = settled(page, "Promise.all(cuts)")
    return outcome


def test_the_loading_tab_closes_and_another_tab_crashes(tabs: Callable[[int], list[Page]]) -> None:
    first, second, third = tabs(3)
    start_streams(third, 40)
    start_streams(second, 4000, waiting=False)
    start_streams(first, 4000, waiting=False)
    first.close()
    with pytest.raises(PlaywrightError):
        second.goto("chrome://crash")
    second.close()
    assert ended(third) == ["whole", "whole"]
    assert "Rome" in run(third, ANSWER)
    wait_for(lambda: run(third, "return (await engine.stats()).clients;") == 1)
    wait_for_requests(third, [0, 0])  # the other tabs' requests have ended


def test_a_tab_is_answered_while_another_one_streams(tabs: Callable[[int], list[Page]]) -> None:
    first, second = tabs(2)
    start_streams(second, 4000)
    wait_for_requests(first, [0, 2])
    second.close()


@pytest.mark.parametrize("how", fewer(["gone", "error"], 1))  # test_killed_worker.py: both
def test_the_worker_dies_in_mid_stream(browser: Browser, tabs: Callable[[int], list[Page]], how: str) -> None:
    first, second = tabs(2)
    for page in (first, second):
        start_streams(page, 60, waiting=page is first)
    kill_shared(browser, how)
    for page in (first, second):
        assert ended(page) == ["whole", "whole"]
    wait_for(lambda: run(first, "return (await engine.stats()).clients;") == 2)
    stats = run(first, "return engine.stats();")
    assert {(model["id"], model["default"]) for model in stats["models"]} == {(CHAT, True), (BERT, False)}
    assert "Rome" in run(second, ANSWER)


def test_the_service_worker_is_stopped_in_mid_stream(
    context: BrowserContext, tabs: Callable[[int], list[Page]]
) -> None:
    (page,) = tabs(1)
    session = context.new_cdp_session(page)
    session.send("ServiceWorker.enable")
    start_streams(page, 40)
    session.send("ServiceWorker.stopAllWorkers")
    cut, whole = ended(page)
    assert whole == "whole"  # the service worker has no part in the engine's own stream
    assert cut
    assert "Rome" in run(page, ANSWER)
    wait_for_requests(page, [0, 0])
    session.detach()


def test_terminating_the_engine_in_one_page_keeps_it_for_the_others(tabs: Callable[[int], list[Page]]) -> None:
    first, second = tabs(2)
    boot = "return (await engine.stats()).timings.boot_ms;"
    booted = run(second, boot)
    start_streams(second, 10)
    run(first, "engine.terminate();")
    assert ended(second) == ["whole", "whole"]
    run(first, "globalThis.engine = await Wisp.create();")
    assert run(first, boot) == booted
    for page in (first, second):
        run(page, "engine.terminate();")
    run(first, "globalThis.engine = await Wisp.create({ memoryBudget: 5e6 });")
    assert run(first, "return (await engine.stats()).models;") == []  # the last one ended it
    error = run(first, "return engine.load({ backend: 'cpu' }).catch((error) => error.error);")
    assert error["code"] == "out_of_memory"
    assert "memoryBudget" in error["message"]
    for page in (first, second):  # the next test's engine has the usual budget
        page.close()


def test_without_shared_workers_each_page_has_its_own(browser: Browser, server: Server) -> None:
    context = browsers.new_profile(browser)
    context.add_init_script("delete globalThis.SharedWorker;")
    asker, host = (open_client_page(context, server) for _ in range(2))
    host.evaluate(ENGINE, ["cpu", CHAT])
    assert "Rome" in run(asker, ANSWER)
    body = {"model": CHAT, "messages": [{"role": "user", "content": STORY}], "stream": True, "max_tokens": 4000,
            "ignore_eos": True}  # it ends after the tab is closed  # fmt: skip
    begin = """globalThis.begun = 0; globalThis.cut = failure((async () => {
        for await (const chunk of await openai.chat.completions.create(body)) begun++;
    })()); while (!(begun > 2)) await new Promise((resolve) => setTimeout(resolve, 5));"""
    run(asker, begin, body=body)
    host.close()
    assert settled(asker, "cut")["code"] == "engine_gone"
    context.close()
