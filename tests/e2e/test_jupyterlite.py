"""A notebook in a real JupyterLite installs the wheel, loads Wisp Mini and streams an answer (docs/python.md).

Runs with WISP_INSTALLS=1 only: it downloads 20 MB of packages and takes about a minute.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.support.bare_pyodide import MODEL, Site
from tests.support.browser import new_profile
from tests.support.jupyterlite import add_jupyterlite

pytestmark = pytest.mark.skipif("WISP_INSTALLS" not in os.environ, reason="WISP_INSTALLS=1 runs it")
KERNEL = "() => globalThis.jupyterapp?.shell.currentWidget?.context?.sessionContext?.session?.kernel?.status"
RUN_ALL = "() => void jupyterapp.commands.execute('notebook:run-all-cells')"
OUTPUTS = "() => [...document.querySelectorAll('.jp-OutputArea-output')].map((output) => output.innerText)"
INSTALL = """import micropip
for wheel in {wheels}:
    await micropip.install(wheel)"""
ASK = """from wisp import Engine
engine = await Engine.load("{model}")
async for text in engine.chat("What is the capital of France?", temperature=0):
    print(text, end="")"""


def wait_for(page: Page, script: str, done: Callable[[object], bool]) -> object:
    for _ in range(960):  # a busy machine needs eight times as long as an idle one
        found = page.evaluate(script)
        if done(found):
            return found
        time.sleep(0.5)
    raise AssertionError(found)


def test_a_notebook_streams_an_answer(tmp_path: Path, chromium: Callable[[str | None], Browser]) -> None:
    with Site(tmp_path / "site") as site:
        wheels = [site.url + name for name in site.wheels]
        cells = [INSTALL.format(wheels=wheels), ASK.format(model=site.url + MODEL.name)]
        page = new_profile(chromium(None)).new_page()
        page.goto(add_jupyterlite(site, tmp_path, cells))
        wait_for(page, KERNEL, lambda status: status == "idle")
        page.evaluate(RUN_ALL)
        outputs = wait_for(page, OUTPUTS, lambda found: "." in str(found))
        page.context.close()
    assert outputs == ["The capital of France is Paris."]
