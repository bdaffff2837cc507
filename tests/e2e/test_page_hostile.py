"""Answers made to break the page, and hosts that send no headers."""

import functools
import http.server
import re
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.browser import new_profile, wait_until
from tests.support.chat_page import NO_ENGINE, open_without_engine
from tests.support.chat_store import store_chat
from tools.headers import ARTIFACT_PAGE_CSP, CSP, PAGE_CSP
from tools.serve import Server

SERVICE_WORKER = True

HOSTILE = {
    "quotes": ">" * 3_500,
    "emphasis": "*_a" * 30_000,
    "brackets": "[" * 50_000,
    "images": "![" * 30_000,
    "code": "".join("e" + "`" * i for i in range(1_000)),
    "lists": "\n".join("  " * i + "- a" for i in range(300)),
    "table": "|" + "a|" * 3_000 + "\n|" + "-|" * 3_000 + "\n" + "|x" * 3_000,
    "addresses": "http://" * 20_000,
    "long": "word " * 200_000,
    # 4 million elements, and minutes, without limits
    "formulas": (
        "$" + "".join(f"\\def\\{a}{{\\{b}\\{b}}}" for a, b in pairwise("abcdef")) + "\\def\\f{xxxxxxxx}\\a$\n\n"
    )
    * 3_000,
    "one formula": "$\\def\\a{" + "x" * 2_000 + "}" + "\\a" * 400 + "$",
    "deep formula": "$" + "\\sqrt{" * 400 + "1" + "}" * 400 + "$",  # Chromium's layout overflowed its stack
    "small formulas": "$a$ " * 20_000,
    "marks": "*[`_<$|~" * 12_000,
    "one word": f"```java\n{'a' * 39_000}\n```\n" * 5,
    "rules": "---\n\n" * 60_000,
}
MOST = 200_000  # elements of the answers


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """The page without an engine."""
    context = new_profile(chromium(None), service_worker=False)
    yield open_without_engine(context, server.url)
    context.close()


def show(page: Page, answers: list[str]) -> None:
    """Visit the page again with a conversation of these answers."""
    store_chat(page, [("?", answer) for answer in answers])
    page.reload()
    expect(page.locator("#thread > .assistant")).to_have_count(len(answers))


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_answer_is_shown_and_the_page_works(page: Page, name: str) -> None:
    show(page, [HOSTILE[name], "**Fine.**"])
    bodies = page.locator("#thread > .assistant .body")
    expect(bodies.nth(0)).to_have_text(re.compile(r"\S"))
    expect(bodies.nth(1).locator("strong")).to_have_text("Fine.")
    assert page.evaluate("document.querySelectorAll('#thread *').length") < MOST
    page.fill("#prompt", "works")
    assert page.input_value("#prompt") == "works"


def test_a_question_of_megabytes_is_laid_out_where_it_is_seen(page: Page) -> None:
    """All of it took the browser 5 s."""
    question = "漢\n" * 400_000 + "👧" * 50_000
    store_chat(page, [(question, "Fine.")])
    page.reload()
    bubble = page.locator("#thread > .user .bubble")
    expect(page.locator("#thread > .assistant .body")).to_have_text("Fine.")
    pieces = bubble.locator(".piece")
    expect(pieces.last).to_have_css("content-visibility", "auto")
    assert 200 < pieces.count() < 300
    texts = pieces.evaluate_all("(all) => all.map((piece) => piece.textContent)")
    assert "".join("\n".join(texts).split()) == "".join(question.split())
    store_chat(page, [("short", "Fine.")])
    page.reload()
    expect(bubble).to_have_text("short")
    assert pieces.count() == 0


def test_links_show_their_target_and_nothing_is_requested(page: Page) -> None:
    foreign: list[str] = []
    page.on("request", lambda request: foreign.append(request.url) if ".test" in request.url else None)
    text = (
        "[Your bank](https://evil.test/x) and https://plain.test/ and ![tracker](https://image.test/a.png)\n\n"
        "<img src=x onerror=alert(1)> [run](javascript:alert(1))\n\n| a | b |\n|:-:|--:|\n| 1 | 2 |"
    )
    show(page, [text])
    body = page.locator("#thread > .assistant .body")
    expect(body).to_contain_text("Your bank (evil.test)")
    expect(body).to_contain_text("tracker (image.test)")
    expect(body).to_contain_text("<img src=x onerror=alert(1)>")
    assert [a.get_attribute("href") for a in body.locator("a").all()] == [
        "https://evil.test/x",
        "https://plain.test/",
        "https://image.test/a.png",
    ]
    assert body.locator("img").count() == 0
    assert [td.get_attribute("align") for td in body.locator("td").all()] == ["center", "right"]
    assert foreign == []


LINKS = {  # the link's text and target -> what is shown of it
    ("https://plain.test/a", "https://plain.test/a"): "https://plain.test/a",
    ("plain.test", "https://plain.test/a"): "plain.test",
    ("PLAIN.test?q", "https://plain.test/?q"): "PLAIN.test?q",
    ("a@plain.test", "mailto:a@plain.test"): "a@plain.test",
    ("paypal.com", "https://paypal.co/"): "paypal.com (paypal.co)",
    ("https://bank.test/?to=evil.test", "https://evil.test/"): "https://bank.test/?to=evil.test (evil.test)",
    ("bank.test", "https://bank.test.evil.test/"): "bank.test (bank.test.evil.test)",
    ("https://bank.test@evil.test/", "https://bank.test@evil.test/"): "https://bank.test@evil.test/ (evil.test)",
    ("evil.test\u202e/tset.knab", "https://evil.test/"): "evil.test\u202e/tset.knab (evil.test)",
    ("help@bank.test", "mailto:a@evil.test?subject=x"): "help@bank.test (a@evil.test)",
}


def test_a_link_whose_text_is_no_address_of_its_host_shows_the_host(page: Page) -> None:
    show(page, ["\n\n".join(f"[{text}]({target})" for text, target in LINKS)])
    links = page.locator("#thread > .assistant .body a")
    expect(links).to_have_count(len(LINKS))
    assert links.evaluate_all("all => all.map((link) => link.textContent)") == list(LINKS.values())


@pytest.fixture
def bare_host(dist: Path) -> Iterator[str]:
    """The address of a static host that sends no headers of its own."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(dist)))
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{running.server_port}/"
    running.shutdown()


INLINE = """() => {
  const script = document.createElement("script");
  script.textContent = "globalThis.injected = true";
  document.body.append(script);
  return globalThis.injected ?? false;
}"""


def test_a_host_without_headers_is_safe(context: BrowserContext, bare_host: str) -> None:
    page = context.new_page()
    page.add_init_script(NO_ENGINE)
    for name in ("index.html", "bench.html", "notices.html"):
        page.goto(bare_host + name)
        assert page.evaluate(INLINE) is False, name
    page.goto(bare_host)
    wait_until(page, "document.querySelector('#welcome:not([hidden])')")


def test_the_page_does_not_run_in_a_frame(context: BrowserContext, bare_host: str) -> None:
    page = context.new_page()
    page.goto(bare_host + "wisp.js")
    page.set_content(f'<iframe src="{bare_host}index.html"></iframe>')
    expect(page.frame_locator("iframe").locator("body")).to_have_text(
        "Wisp does not run inside another page. Open it in a tab of its own."
    )


def test_hosts_that_read_a_file_of_headers_get_all(dist: Path) -> None:
    entries = re.split(r"\n(?=/)", (dist / "_headers").read_text().strip())
    policies = {lines[0]: lines[1:] for lines in (entry.splitlines() for entry in entries)}
    for address in ("/", "/index.html", "/sw.js", "/wisp.js", "/assets/*"):
        assert f"  Content-Security-Policy: {CSP}" in policies[address]
    assert f"  Content-Security-Policy: {ARTIFACT_PAGE_CSP}; frame-ancestors 'self'" in policies["/artifact.html"]
    assert "  Connection-Allowlist: ()" in policies["/artifact.html"]
    assert f"{PAGE_CSP}; frame-ancestors 'none'" == CSP


def test_caches_of_other_applications_of_the_origin_stay(context: BrowserContext, server: Server) -> None:
    page = context.new_page()
    page.add_init_script(NO_ENGINE)
    page.goto(f"{server.url}tests/blank.html")
    page.evaluate("Promise.all(['other', 'wisp-notes', 'wisp http://127.0.0.1/x/ 1'].map((name) => caches.open(name)))")
    page.goto(server.url)
    wait_until(page, "navigator.serviceWorker.controller")
    names = page.evaluate("caches.keys()")
    assert {"other", "wisp-notes", "wisp http://127.0.0.1/x/ 1"} < set(names)
