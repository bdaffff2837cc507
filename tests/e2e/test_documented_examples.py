"""The examples of the documentation, run as they stand."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page

from tools.paths import ROOT
from tools.serve import Server

SNIPPET = re.compile(r"^```js\n(.*?)^```", re.S | re.M)
IMPORT = re.compile(r'^import (\{.*?\}) from ("/.*?");', re.M)
SET_UP = """() => {
  delete globalThis.LanguageModel; // a browser without a model of its own
  globalThis.logged = [];
  console.log = (...values) => logged.push(values.join(" "));
  document.body.append(document.createElement("canvas"));
}"""


@pytest.fixture
def page(engine_context: BrowserContext, server: Server) -> Iterator[Page]:
    """A page of the origin that is not Wisp's, and logs into a list. Its engine lives on between the tests."""
    made = engine_context.new_page()
    made.goto(f"{server.url}tests/blank.html")
    made.evaluate(SET_UP)
    yield made
    made.close()


def run(page: Page, document: str, *numbers: int, value: str) -> Any:
    """Run some examples of a document, one after the other in one scope; return a value that they have then."""
    found = SNIPPET.findall((ROOT / document).read_text(encoding="utf-8"))
    code = "".join(IMPORT.sub(r"const \1 = await import(\2);", found[number]) for number in numbers)
    code = re.sub("^const ", "var ", code, flags=re.M)  # names may come again
    return page.evaluate(f"async () => {{\n{code}\nreturn {value};\n}}")


def test_the_readme(page: Page) -> None:
    content, text = run(page, "README.md", 0, 1, value='[answer.choices[0].message.content, logged.join("")]')
    assert "Paris" in text
    assert json.loads(content).keys() == {"city", "country"}


def test_the_sdk(page: Page) -> None:
    """There is no weather at the address, which the model learns."""
    assert run(page, "docs/sdk.md", 0, 1, value="[ended, typeof message.content]") == ["answer", "string"]


def test_the_prompt_api(page: Page) -> None:
    logged = run(page, "docs/prompt-api.md", 0, 1, value="logged")
    assert "100 %" in logged
    assert "Paris" in logged[-1]  # the answer after the call


def test_pictures_in_the_prompt_api(page: Page) -> None:
    (text,) = run(page, "docs/prompt-api.md", 2, value="logged")
    assert text
