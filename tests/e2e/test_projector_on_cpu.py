"""A projector whose kernels are wrong on the GPU runs on the CPU; its text model stays on the GPU."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Playwright

from tests.support import browser as browsers
from tests.support.killed_workers import in_shared
from tests.support.openai_client import run
from tools.paths import ROOT
from tools.serve import Server

PICTURES = ROOT / "tests" / "golden" / "sees"
ON_GPU = {"backend": "auto", "variant": {"software": False}, "prove": True}  # as on a GPU that is none of software
SET_UP = """async () => {
  const { Wisp } = await import("/wisp.js");
  globalThis.engine = await Wisp.create();
}"""
LOAD = """
const { notices } = await engine.load({ model: "wisp-mini-sees-q4_0", tune: false, contextLength: 512, ...options });
const { choices } = await engine.chat.completions.create(request);
const { backend, projector } = await engine.stats();
await engine.unload("wisp-mini-sees-q4_0");
return { text: choices[0].message.content, notices, backends: [backend, projector.backend] };"""
# The kernel that cuts pictures into patches takes the wrong colour.
FAULT = """
const make = GPUDevice.prototype.createShaderModule;
GPUDevice.prototype.createShaderModule = function ({ label, code }) {
  if (label?.startsWith("patches ")) code = code.replace("% PATCH * 3u + c", "% PATCH * 3u");
  return make.call(this, { label, code });
};"""

pytestmark = pytest.mark.lavapipe


PROBE = json.loads((PICTURES / "probes.json").read_text(encoding="utf-8"))[3]
((QUESTION, ANSWER),) = PROBE["turns"]


def request() -> dict[str, Any]:
    data = base64.b64encode((PICTURES / PROBE["picture"]).read_bytes()).decode()
    picture = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    content = [picture, {"type": "text", "text": QUESTION}]
    return {"messages": [{"role": "user", "content": content}], "max_tokens": 24, "temperature": 0}


@pytest.fixture
def browser(playwright_run: Playwright) -> Iterator[Browser]:
    """A browser without other pages: all of its shared workers get the fault."""
    started = browsers.launch(playwright_run, "lavapipe")
    yield started
    started.close()


def test_a_projector_with_wrong_kernels_runs_on_the_cpu(browser: Browser, server: Server) -> None:
    page = browsers.new_profile(browser, service_worker=False).new_page()  # on which nothing is proven yet
    page.set_default_timeout(120_000)
    page.goto(f"{server.url}tests/blank.html")
    page.evaluate(SET_UP)
    in_shared(browser, FAULT)
    found = run(page, LOAD, options=ON_GPU, request=request())
    page.context.close()
    assert found["backends"] == ["webgpu", "cpu"]
    assert found["text"] == ANSWER
    (notice,) = found["notices"]  # none of the text model's kernels, which are right
    assert notice.startswith("Pictures and sound are read on the CPU, which is slower: The kernel patch")
