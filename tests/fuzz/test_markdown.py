"""The rendering of Markdown in a real page: what is streamed ends as what is rendered at once, and nothing runs."""

import json
import os
from random import Random

import pytest
from playwright.sync_api import BrowserContext, Page

from tests.fuzz import markdown
from tests.support.browser import watch
from tests.support.openai_client import bundle
from tools.paths import ROOT
from tools.serve import Server

CASES = int(os.environ.get("WISP_FUZZ_CASES", "300"))
SEED = int(os.environ.get("WISP_FUZZ_SEED", "1"))
CHUNK = 100  # cases of one call
RUN = """async ([script, cases]) => {
  const { check } = await import(script);
  return JSON.parse(cases).map(([text, cuts]) => check(text, cuts));
}"""


@pytest.fixture
def fuzz_page(context: BrowserContext, server: Server) -> Page:
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    return page


@pytest.mark.timeout(0)
def test_rendering_is_the_same_streamed_and_runs_nothing(fuzz_page: Page) -> None:
    script = bundle("markdown", ROOT / "tests" / "fuzz" / "markdown.js")
    fuzz_page.evaluate("(script) => import(script).then(({ ready }) => ready())", script)
    errors, requests = watch(fuzz_page), list[str]()
    fuzz_page.on("request", lambda request: requests.append(request.url))
    fuzz_page.on("dialog", lambda dialog: errors.append(dialog.message))
    for first in range(SEED, SEED + CASES, CHUNK):
        cases = [markdown.case(Random(seed)) for seed in range(first, min(first + CHUNK, SEED + CASES))]
        found = fuzz_page.evaluate(RUN, [script, json.dumps(cases)])
        wrong = {first + i: (what, cases[i]) for i, what in enumerate(found) if what}
        assert not wrong
        assert not errors, f"seeds {first} to {first + CHUNK - 1}"
    own = f"{fuzz_page.url.partition('/tests/')[0]}/assets/fonts/"
    assert [url for url in requests if not url.startswith(own)] == []  # a formula may need one more font of the page
