"""A worker that crashes is replaced: every answer under way goes on where it was, and its text is the same."""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Playwright

from tests.support import browser as browsers
from tests.support.killed_workers import (
    REQUESTS,
    SET_UP,
    STORY,
    answers,
    ask,
    campaign,
    kill_own,
    kill_shared,
    start_until,
)
from tests.support.openai_client import open_client_page, run, settled
from tests.support.waiting import wait_for
from tools.paths import ROOT
from tools.serve import Server

SEES = "wisp-mini-sees-q4_0"
PICTURES = ROOT / "tests" / "golden" / "sees"


@pytest.fixture(scope="module")
def browser(playwright_run: Playwright) -> Iterator[Browser]:
    """A browser without WebGPU for this module alone: its workers are ended."""
    started = browsers.launch(playwright_run, None)
    yield started
    started.close()


@pytest.fixture(scope="module")
def open_page(browser: Browser, server: Server) -> Callable[..., Page]:
    """open_page(shared) -> a page with the model in a shared worker, or in a worker of its own."""
    context = browsers.new_profile(browser)

    def opened(shared: bool = True) -> Page:
        page = open_client_page(context, server)
        page.evaluate(SET_UP, ["cpu", shared])
        return page

    return opened


@pytest.fixture(scope="module")
def page(open_page: Callable[..., Page]) -> Page:
    return open_page()


@pytest.fixture(scope="module")
def own_page(open_page: Callable[..., Page]) -> Page:
    """A page with a worker that no other page has."""
    return open_page(shared=False)


@pytest.fixture(scope="module")
def expected(page: Page) -> list[Any]:
    """The answers without a crash."""
    return [answers(page, [request])[0] for request in REQUESTS]


@pytest.mark.parametrize("how", ["gone", "error"])
def test_answers_go_on(browser: Browser, page: Page, expected: list[Any], how: str) -> None:
    run(page, "notices.length = 0;")
    start_until(page, REQUESTS, 10)
    kill_shared(browser, how)
    assert settled(page, "answers") == expected
    wait_for(lambda: run(page, "return notices.length;"))
    (notice,) = run(page, "return notices;")
    assert ("a defect" if how == "error" else "it was ended, or crashed") in notice
    stats = run(page, "return engine.stats();")
    assert [model["requests"] for model in stats["models"]] == [0]
    assert stats["cache"]["downloaded_bytes"] == 0


def test_the_answers_of_every_tab_go_on(
    browser: Browser, open_page: Callable[..., Page], page: Page, expected: list[Any]
) -> None:
    others = [open_page() for _ in range(2)]
    tabs = [page, *others]
    start_until(page, REQUESTS[:3], 10, others)
    kill_shared(browser)
    for tab in tabs:
        assert settled(tab, "answers") == expected[:3]
    assert run(page, "return (await engine.stats()).clients;") >= 3
    for other in others:
        other.close()


def test_a_worker_of_the_page_alone(own_page: Page, expected: list[Any]) -> None:
    page = own_page
    mine = [i for i, request in enumerate(REQUESTS) if "http" not in request]
    start_until(page, [REQUESTS[i] for i in mine], 10)
    kill_own(page)
    assert settled(page, "answers") == [expected[i] for i in mine]


def test_an_answer_without_a_seed_goes_on(browser: Browser, page: Page) -> None:
    begin = """globalThis.texts = []; globalThis.ended = (async () => {
        const stream = await engine.chat.completions.create(body);
        for await (const { choices } of stream) texts.push(choices[0]?.delta.content ?? "");
        return [texts.join(""), stream.journal];
    })();
    let over = false;
    ended.finally(() => (over = true)).catch(() => {});
    while (!over && texts.length < 3) await new Promise((resolve) => setTimeout(resolve, 2));
    return over;"""  # a busy page joins chunks
    for _ in range(10):
        if not run(page, begin, body=ask(STORY, temperature=1.2, max_tokens=160)):
            break
    kill_shared(browser)
    text, journal = settled(page, "ended")
    (choice,) = journal["choices"]
    same = "return (await engine.chat.completions.create(body)).choices[0].message.content;"
    seeded = ask(STORY, temperature=1.2, max_tokens=160, seed=choice["seed"], stream=False)
    assert run(page, same, body=seeded) == text


def test_a_request_that_ends_every_worker_fails(own_page: Page, expected: list[Any]) -> None:
    page = own_page
    begin = """globalThis.failed = failure((async () => {
            for await (const chunk of await engine.chat.completions.create(body));
        })());
        for (let kills = 1; kills <= 3; kills++) {
            notices.length = 0;
            workers.at(-1).terminate();
            while (!notices.length) await new Promise((resolve) => setTimeout(resolve));
        }"""
    run(page, begin, body=REQUESTS[0])
    assert settled(page, "failed")["code"] == "worker_crashed"
    assert answers(page, REQUESTS[:1]) == expected[:1]


def test_a_model_from_a_file_is_loaded_again(browser: Browser, open_page: Callable[..., Page], page: Page) -> None:
    """Also where only another tab has the file."""
    address = "/repo/tests/golden/llama/llama.F16.gguf"
    load = """const blob = await (await fetch(address)).blob();
        await engine.load({ model: new File([blob], "mine.gguf"), name: "mine", backend: "cpu", default: false });"""
    complete = "return (await engine.completions.create(body)).choices[0].text;"
    body = {"model": "mine", "prompt": "Once", "temperature": 0, "max_tokens": 8}
    other = open_page()
    run(other, load, address=address)
    text = run(other, complete, body=body)
    assert run(page, complete, body=body) == text
    other.close()
    kill_shared(browser)
    assert run(page, complete, body=body) == text
    run(page, "await engine.unload('mine');")


def test_answers_about_pictures_go_on(browser: Browser, page: Page) -> None:
    """The next worker loads the projector, too, and encodes the pictures again."""
    run(page, "await engine.load({ model, backend: 'cpu', default: false });", model=SEES)
    asked = []
    for probe in json.loads((PICTURES / "probes.json").read_text(encoding="utf-8"))[:2]:
        data = base64.b64encode((PICTURES / probe["picture"]).read_bytes()).decode()
        picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        content = [picture, {"type": "text", "text": probe["turns"][0][0]}]
        more = {"model": SEES, "messages": [{"role": "user", "content": content}]}
        asked.append(ask("", temperature=1, seed=4, n=2, ignore_eos=True) | more)
    undisturbed = answers(page, asked)
    start_until(page, asked, 3)
    kill_shared(browser)
    assert settled(page, "answers") == undisturbed
    run(page, "await engine.unload(model);", model=SEES)


def test_workers_killed_at_random(browser: Browser, page: Page, expected: list[Any]) -> None:
    assert campaign(page, lambda: kill_shared(browser), 2, seed=1, expected=expected) > 2
