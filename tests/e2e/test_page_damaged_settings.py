"""Settings that are damaged, of another version, or no settings: the page starts, answers and is set anew."""

import json

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.support.browser import watch
from tests.support.chat_page import ask, close_settings, new_chat, wait_ready
from tests.support.openai_client import bundle
from tools.paths import ROOT
from tools.serve import Server

KEYS = (
    "wisp.api", "wisp.ask", "wisp.assistants", "wisp.bridge", "wisp.chat", "wisp.embedder", "wisp.folders",
    "wisp.hub.viewed", "wisp.language", "wisp.model", "wisp.notice", "wisp.prefetch", "wisp.projectors",
    "wisp.settings", "wisp.settings.models", "wisp.snippets", "wisp.theme", "wisp.titles", "wisp.tools.allowed",
    "wisp.tools.packages", "wisp.unsent", "wisp.unsent-media", "wisp.words",
)  # fmt: skip
MODEL = "Wisp Mini"
VALUES = {
    "a damaged text": '{"a',
    "null": "null",
    "a number": "7",
    "a text": '"text"',
    "a list": '[1, null, "a", [], {"id": 5}, {"name": null}]',
    "an object": '{"a": 1, "name": {}, "length": 3}',
    "an empty text": "",
}


def opened(context: BrowserContext, server: Server, stored: dict[str, str]) -> tuple[Page, list[str]]:
    """The page, in whose storage these texts were when it started."""
    page = context.new_page()
    errors = watch(page)
    page.goto(f"{server.url}notices.html")
    page.evaluate("(all) => { localStorage.clear(); Object.assign(localStorage, all); }", stored)
    page.goto(server.url)
    wait_ready(page)
    return page, errors


@pytest.mark.parametrize("name", VALUES)
def test_the_page_starts_and_answers_whatever_is_stored(
    engine_context: BrowserContext, server: Server, name: str
) -> None:
    page, errors = opened(engine_context, server, dict.fromkeys(KEYS, VALUES[name]))
    new_chat(page)
    assert ask(page, "What is the capital of Italy?")
    page.click("#settings-button")
    page.get_by_label("Top-k").fill("17")
    close_settings(page)
    assert json.loads(page.evaluate("localStorage['wisp.settings']"))["top_k"] == 17
    assert errors == []
    page.close()


def test_single_values_that_are_none_do_not_hide_the_others(engine_context: BrowserContext, server: Server) -> None:
    """Such as those of a later version."""
    settings = {"temperature": "hot", "top_k": 3, "top_p": None, "min_p": [], "seed": 7, "style": {"of": "later"}}
    models = {MODEL: {"max_tokens": 4, "temperature": {}}, "other": 5}
    page, errors = opened(
        engine_context, server, {"wisp.settings": json.dumps(settings), "wisp.settings.models": json.dumps(models)}
    )
    new_chat(page)
    assert len(ask(page, "What is the capital of Italy?").split()) <= 4
    page.click("#settings-button")
    expect(page.get_by_label("Top-k")).to_have_value("3")
    expect(page.get_by_label("Seed")).to_have_value("7")
    expect(page.get_by_label("Min-p")).to_have_value("0.05")
    expect(page.locator("#temperature")).to_have_value("0.4")
    assert errors == []
    page.close()


def test_assistants_of_a_later_version_stay_stored(engine_context: BrowserContext, server: Server) -> None:
    later, own = {"id": "b", "name": "B", "of": "later"}, {"id": "a", "name": "A", "text": "x"}
    page, errors = opened(engine_context, server, {"presets-of-a-test": json.dumps([own, later])})
    stored = page.evaluate(
        """async (modules) => {
          const { Presets } = await import(modules);
          const presets = new Presets("presets-of-a-test", (one) => typeof one.text === "string");
          presets.set({ ...presets.all[0], text: "y" });
          presets.set({ id: "c", name: "C", text: "z" });
          return JSON.parse(localStorage.getItem("presets-of-a-test"));
        }""",
        bundle("presets", ROOT / "app" / "ui" / "chats" / "presets.js"),
    )
    assert stored == [own | {"text": "y"}, {"id": "c", "name": "C", "text": "z"}, later]
    assert errors == []
    page.close()
