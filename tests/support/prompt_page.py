"""A page with the Prompt API over Wisp Mini, which is not Wisp's page."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile
from tools.serve import Server


@contextmanager
def open_prompt_page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page with these globals.

    `LanguageModel`; `Small`: one with a context of 256 tokens; `exactly`: options for greedy answers;
    `failed(promise)`: the name of the error, or null.
    """
    context = new_profile(browser)
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    page.evaluate(
        """async () => {
            const { Wisp } = await import("/wisp.js");
            const { languageModel, ...classes } = await import("/prompt-api.js");
            Object.assign(globalThis, classes);
            globalThis.Small = languageModel(Wisp, { model: "wisp-mini-q4_0", contextLength: 256 });
            globalThis.LanguageModel = languageModel(Wisp, { model: "wisp-mini-q4_0" });
            globalThis.exactly = { temperature: 0, topK: 1 };
            globalThis.failed = (promise) => promise.then(() => null, (error) => error.name);
        }"""
    )
    yield page
    context.close()


def run(page: Page, code: str) -> Any:
    """The value of an async function body."""
    return page.evaluate(f"async () => {{ {code} }}")
