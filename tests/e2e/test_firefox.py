"""The page in Firefox without WebGPU: it starts, answers on the CPU, stores chats, shares its engine with a second tab,
and runs code of a model in its sandbox. test_firefox_webgpu.py has WebGPU.
"""

from collections.abc import Iterator

import pytest

from tests.support.firefox import Firefox, Tab, running_firefox
from tests.support.openai_client import bundle
from tests.support.waiting import wait_for
from tools.paths import ROOT
from tools.serve import Server

COMPLETE = "() => document.querySelectorAll('#thread > .assistant .stats').length"
READY = "() => document.querySelector('#model-dot').className"
RUN = """async (script, language, text, seconds) => {
  globalThis.code ??= await import(script);
  await code.open();
  const tool = code.codeTools({ seconds }).tools.find(({ name }) => name === language);
  const { text: said } = await tool.run({ code: text }, { signal: new AbortController().signal });
  return [said, document.querySelectorAll("iframe").length];
}"""
ATTEMPTS = """const reached = [], HERE = "http://127.0.0.1:1/";
const attempts = {
  fetch: () => fetch(HERE, { mode: "no-cors" }), import: () => import(HERE), eval: () => (0, eval)("1"),
  storage: () => new Promise((ok, no) => { const r = indexedDB.open("x"); r.onsuccess = ok; r.onerror = no; }),
};
for (const [name, run] of Object.entries(attempts)) try { await run(); reached.push(name); } catch {}
console.log(reached); for (;;);"""
CLIENTS = "async () => (await (await (await import('/wisp.js')).Wisp.create()).stats()).clients"


@pytest.fixture(scope="module")
def firefox() -> Iterator[Firefox]:
    with running_firefox() as running:
        yield running


def opened(firefox: Firefox, url: str) -> Tab:
    """A tab whose model is ready. Sampling is greedy."""
    tab = firefox.tab()
    tab.open(f"{url}notices.html")
    tab.evaluate("() => { localStorage['wisp.settings'] = '{\"temperature\": 0, \"max_tokens\": 40}' }")
    tab.open(url)
    wait_for(lambda: tab.evaluate(READY) == "dot ready")
    return tab


def ask(tab: Tab, question: str) -> str:
    """Send a message and return the whole answer."""
    before = tab.evaluate(COMPLETE)
    tab.type("#prompt", question)
    wait_for(lambda: tab.evaluate(COMPLETE) > before)
    return tab.text("#thread > .assistant .body")


def test_the_page_answers_and_stores_the_chat_and_a_second_tab_shares_the_engine(
    firefox: Firefox, server: Server
) -> None:
    """One test: starting the page costs most of its time."""
    tab = opened(firefox, server.url)
    assert tab.text("#model-badge") == "CPU"
    assert "Rome" in ask(tab, "What is the capital of Italy?")

    second = opened(firefox, server.url)
    wait_for(lambda: "Rome" in second.text("#thread .assistant .body"))  # the chat that was open
    assert second.evaluate(CLIENTS) == 2
    assert "Paris" in ask(second, "What is the capital of France?")

    tab.reload()
    wait_for(lambda: "Paris" in tab.text("#thread .assistant .body"))


def test_code_of_a_model_runs_in_the_sandbox(firefox: Firefox, server: Server) -> None:
    tab = firefox.tab()
    tab.open(f"{server.url}tests/blank.html")
    script = bundle("code", ROOT / "tests" / "support" / "code_page.js")
    ran, frames = tab.evaluate(RUN, script, "python", "import numpy\nint(numpy.arange(4).sum()) * 7", 60)
    assert (ran, frames) == ("42", 1)
    ran, frames = tab.evaluate(RUN, script, "javascript", ATTEMPTS, 2)
    assert (ran, frames) == ("[]\nStopped: the code ran too long.", 1)  # the frame that is left is Python's


ABOVE_4_GIB = """async () => {
  const { Compute } = await import("/repo/py_engine/cpu/compute.js");
  const sdk = await (await fetch("/wisp.js")).text();
  const { cpu } = JSON.parse(sdk.slice(sdk.indexOf("{"), sdk.indexOf("};") + 1));
  const urls = Object.fromEntries(Object.entries(cpu).map(([name, url]) => [name, new URL(url, location.href).href]));
  const compute = await Compute.open(urls, Compute.memory64);
  const address = 5e9;
  await compute.grow(address + 3);
  compute.write(new Uint8Array([1, 2, 3]), new Float64Array([address, 0, 3]));
  const { data } = await compute.read(new Float64Array([address, 3, 1, 0]));
  compute.close();
  return [...new Uint8Array(data)];
}"""


def test_the_cpu_engine_has_memory_above_4_gib(firefox: Firefox, server: Server) -> None:
    """tests/engine/test_memory64.py computes there, in Chromium."""
    tab = firefox.tab()
    tab.open(f"{server.url}notices.html")
    assert tab.evaluate(ABOVE_4_GIB) == [1, 2, 3]
