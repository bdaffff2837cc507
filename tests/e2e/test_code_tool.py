"""Code that a model wrote runs in the page's sandbox: what it can do, its limits, and that it reaches nothing."""

import base64
import json
import os
import re
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile, wait_until
from tests.support.code_page import open_code_page, prepare, python
from tests.support.listener import Listener
from tests.support.waiting import wait_for
from tools.serve import Server
from tools.wheel import wheel

BREAK_OFF = """() => {
  const { arrayBuffer } = Response.prototype;
  globalThis.asWritten = () => (Response.prototype.arrayBuffer = arrayBuffer);
  const once = async () => { asWritten(); throw new TypeError("broken off"); };
  Response.prototype.arrayBuffer = once;
}"""
PNG = [0x89, 0x50, 0x4E, 0x47]


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """A page with the code tools, whose service worker has stored what they need.

    Starting Python takes most of the time. So tests that end the session are the last.
    """
    made = open_code_page(chromium(None), server)
    prepare(made)
    yield made
    made.context.close()


@pytest.fixture
def listener() -> Iterator[Listener]:
    opened = Listener()
    yield opened
    opened.close()


def javascript(page: Page, code: str) -> dict[str, Any]:
    found: dict[str, Any] = page.evaluate("(text) => run('javascript', text)", code)
    return found


def test_python_starts_without_a_network(page: Page) -> None:
    page.evaluate("() => source.end()")
    page.context.set_offline(True)
    try:
        assert python(page, "import numpy\nnumpy.ones(3).sum()")["said"].endswith("3.0)")
    finally:
        page.context.set_offline(False)


def test_python_keeps_its_variables_and_shows_the_last_value(page: Page) -> None:
    assert python(page, "x = 6\nprint('six')")["said"] == "six"
    assert python(page, "x * 7")["said"] == "42"


def test_numpy_and_pictures(page: Page) -> None:
    ran = python(
        page, "import numpy as np\nshow(np.arange(12).reshape(3, 4), 'grey')\nopen('a.svg', 'w').write('<svg/>')"
    )
    assert (ran["failed"], "a.svg, grey.png" in ran["said"]) == (False, True)
    (svg, svg_type, _), (name, kind, data) = ran["files"]
    assert (svg, svg_type, name, kind, data[:4]) == ("a.svg", "image/svg+xml", "grey.png", "image/png", PNG)
    size = """async (bytes) => {
      const made = await createImageBitmap(new Blob([new Uint8Array(bytes)], { type: "image/png" }));
      return [made.width, made.height];
    }"""
    assert page.evaluate(size, data) == [4, 3]


def test_errors_name_the_line_and_what_is_missing(page: Page) -> None:
    ran = python(page, "def f():\n    return 1 / 0\nf()")
    assert ran["failed"]
    assert "line 2, in f" in ran["said"]
    assert "ZeroDivisionError" in ran["said"]
    assert "session.py" not in ran["said"]
    assert "tensorflow is not in this sandbox" in python(page, "import tensorflow as tf")["said"]


def test_plots_are_pictures(page: Page) -> None:
    ran = python(
        page,
        "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.title('A')\nplt.show()\nplt.bar('ab', [1, 2]);0",
    )
    assert (ran["failed"], ran["said"]) == (False, "0\nThe user was given: plot-1.png, plot-2.png")
    assert [(kind, data[:4]) for _, kind, data in ran["files"]] == [("image/png", PNG)] * 2
    own = python(page, "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.savefig('own.svg')")
    assert [name for name, *_ in own["files"]] == ["own.svg"]
    both = python(page, "show([[0, 1]], 'eye'); plt.plot([1]); plt.savefig('own.png'); plt.figure(); plt.plot([2])")
    assert [re.sub(r"\d+", "N", name) for name, *_ in both["files"]] == ["eye.png", "own.png", "plot-N.png"]


def test_a_package_that_cannot_be_loaded(page: Page) -> None:
    """The model is told why, and that the package is there; the next call loads it."""
    page.context.set_offline(True)
    try:
        said = python(page, "import sympy")["said"]
    finally:
        page.context.set_offline(False)
    assert re.fullmatch(r"ModuleNotFoundError: sympy could not be loaded: .*fetch.*\. Import it by name .*", said), said
    assert "not in this sandbox" in python(page, "import astropy")["said"]
    page.evaluate(BREAK_OFF)
    try:
        assert "could not be loaded: broken off." in python(page, "import sympy")["said"]
    finally:
        page.evaluate("() => void asWritten()")
    assert python(page, "import sympy\nsympy.sqrt(16)")["said"] == "4"


def test_packages_of_the_sandbox(page: Page) -> None:
    ran = python(
        page,
        """import pandas as pd
frame = pd.DataFrame({"city": ["Rome", "Oslo", "Rome"], "n": [1, 2, 3]})
frame.groupby("city").sum().plot(kind="bar")
print(frame.groupby("city").n.sum().to_dict())""",
    )
    assert "{'Oslo': 2, 'Rome': 4}" in ran["said"]
    assert [re.sub(r"\d+", "N", name) for name, *_ in ran["files"]] == ["plot-N.png"]
    for code, said in (
        ("from sympy import symbols, factor\nx = symbols('x')\nfactor(x**2 - 1)", "(x - 1)*(x + 1)"),
        (
            "import docx\nmade = docx.Document()\nmade.add_paragraph('Hello')\nmade.save('a.docx')\n"
            "docx.Document('a.docx').paragraphs[0].text",
            "'Hello'\nThe user was given: a.docx",
        ),
        ("from pptx import Presentation\nPresentation().slide_layouts[0].name", "'Title Slide'"),
        (
            "import pandas as pd\npd.DataFrame({'a': [1, 2]}).to_excel('a.xlsx', index=False)\n"
            "int(pd.read_excel('a.xlsx').a.sum())",
            "3\nThe user was given: a.xlsx",
        ),
        (
            "import xlsxwriter\nwith xlsxwriter.Workbook('b.xlsx') as book: book.add_worksheet().write(0, 0, 7)\n"
            "import openpyxl\nopenpyxl.load_workbook('b.xlsx').active['A1'].value",
            "7\nThe user was given: b.xlsx",
        ),
        ("from bs4 import BeautifulSoup\nBeautifulSoup('<p>Hi</p>', 'lxml').p.text", "'Hi'"),
    ):
        assert python(page, code)["said"] == said
    ran = python(
        page,
        "import seaborn, pandas\nseaborn.barplot(pandas.DataFrame({'x': [1], 'y': [3]}), x='x', y='y', errorbar=None);",
    )
    assert [data[:4] for _, _, data in ran["files"]] == [PNG]


@pytest.mark.skipif("WISP_INSTALLS" not in os.environ, reason="WISP_INSTALLS=1 runs it: it takes a minute")
def test_large_packages_of_the_sandbox(page: Page) -> None:
    root = python(page, "from scipy import optimize\nround(optimize.brentq(lambda x: x * x - 2, 0, 2), 6)")
    assert root["said"] == "1.414214"
    line = "from sklearn.linear_model import LinearRegression\nLinearRegression().fit([[0], [1]], [1, 3]).coef_"
    assert python(page, line)["said"] == "array([2.])"


def test_wheels_of_the_user_can_be_imported(page: Page) -> None:
    words = {"word_lists/__init__.py": b"import mpmath\nANIMALS = ('cat', 'dog')"}  # mpmath is in the sandbox
    made = base64.b64encode(wheel("word_lists", "1.0", words, {}, ("mpmath>=1.3", "pytest; extra == 'test'"))).decode()
    said = page.evaluate(
        """async (given) => {
          const bytes = Uint8Array.from(atob(given), (each) => each.charCodeAt(0));
          const files = [{ name: "word_lists-1.0-py3-none-any.whl", blob: new Blob([bytes]) },
            { name: "broken-1.0-py3-none-any.whl", blob: new Blob(["no wheel"]) }];
          const signal = new AbortController().signal;
          const code = "from word_lists import ANIMALS; ANIMALS";
          return (await source.tools[0].run({ code }, { signal, chat: "one", files })).text;
        }""",
        made,
    )
    assert said.endswith("('cat', 'dog')")
    assert "broken-1.0-py3-none-any.whl cannot be installed" in said


def test_javascript_logs_returns_and_saves(page: Page) -> None:
    ran = javascript(page, "console.log('a', { b: 1 }); save('x.csv', '1,2'); return [1, 2n]")
    assert ran["said"].startswith('a {"b":1}\n[1,"2"]')
    assert ran["files"] == [["x.csv", "text/csv", [49, 44, 50]]]
    assert "SyntaxError" in javascript(page, "return (")["said"]


# Each attempt is an expression. It has reached something if it resolves, or if the listener notices it.
NOTICED = {"fetch": "fetch", "XMLHttpRequest": "xhr", "synchronous XMLHttpRequest": "sync", "import": "import",
           "importScripts": "scripts", "form": "form?", "WebSocket": "socket", "EventSource": "events",
           "WebSocketStream": "stream", "font": "font"}  # fmt: skip
IN_WORKERS = {
    "fetch": "fetch(HTTP + 'fetch', { mode: 'no-cors' })",
    "own server": "fetch(OWN + 'index.html', { mode: 'no-cors' })",
    "XMLHttpRequest": "new Promise((ok, no) => { const x = new XMLHttpRequest(); x.open('GET', HTTP + 'xhr'); "
    "x.onload = ok; x.onerror = no; x.send() })",
    "synchronous XMLHttpRequest": "(() => { const x = new XMLHttpRequest(); x.open('GET', HTTP + 'sync', false); "
    "x.send() })()",
    "WebSocket": "new Promise((ok, no) => { const s = new WebSocket(HTTP.replace('http', 'ws') + 'socket'); "
    "s.onopen = ok; s.onerror = no })",
    "EventSource": "new Promise((ok, no) => { const s = new EventSource(HTTP + 'events'); s.onopen = ok; "
    "s.onerror = no })",
    "WebSocketStream": "new WebSocketStream(HTTP.replace('http', 'ws') + 'stream').opened",
    "font": "new FontFace('x', `url(${HTTP}font)`).load()",
    "file system": "new Promise((ok, no) => webkitRequestFileSystem(0, 1, ok, no))",
    "WebTransport": "new WebTransport(HTTP.replace('http', 'https')).ready",
    "import": "import(HTTP + 'import')",
    "import of data": "import('data:text/javascript,export default 1')",
    "importScripts": "importScripts(HTTP + 'scripts')",
    "worker": "new Promise((ok, no) => { const w = new Worker(URL.createObjectURL(new Blob(['postMessage(1)']))); "
    "w.onmessage = ok; w.onerror = no })",
    "postMessage": "postMessage(1) ?? 1",
    "BroadcastChannel": "new BroadcastChannel('x')",
    "eval": "(0, eval)('1')",
    "Function": "new Function('return 1')()",
    "IndexedDB": "new Promise((ok, no) => { const r = indexedDB.open('x'); r.onsuccess = ok; r.onerror = no })",
    "caches": "caches.keys()",
    "OPFS": "navigator.storage.getDirectory()",
    "WebAssembly": "WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0]))",
}
IN_PAGES = {
    "document": "document.title.length",
    "localStorage": "localStorage.length",
    "cookie": "document.cookie.length",
    "service worker": "navigator.serviceWorker.getRegistrations()",
    "parent's document": "parent.document.title",
    "top's address": "top.location.href",
    "opener": "opener ?? (window.opener === null ? 1 : no)",
    "form": "(() => { const f = document.createElement('form'); f.action = HTTP + 'form'; f.target = 'x'; "
    "document.body.append(Object.assign(document.createElement('iframe'), { name: 'x' }), f); f.submit() })()",
    "WebRTC": "new RTCPeerConnection({ iceServers: [{ urls: `stun:127.0.0.1:${PORT}` }] })",
}
ATTEMPTS = """
const HTTP = "http://127.0.0.1:%(port)d/", OWN = "%(own)s", PORT = %(port)d;
const attempts = { %(attempts)s };
const late = () => new Promise((_, no) => setTimeout(no, %(ms)d));
const reached = [];
await Promise.all(Object.entries(attempts).map(async ([name, run]) => {
  try { await Promise.race([run(), late()]); reached.push(name); } catch {}
}));
"""


def attempts(which: dict[str, str], listener: Listener, server: Server, seconds: int = 2) -> str:
    written = ", ".join(f"{json.dumps(name)}: async () => await ({code})" for name, code in which.items())
    return ATTEMPTS % {"port": listener.port, "own": server.url, "attempts": written, "ms": 1000 * seconds}


def test_javascript_reaches_nothing(page: Page, listener: Listener, server: Server) -> None:
    before = page.url
    leave = "try { location.href = HTTP; reached.push('navigation'); } catch {}\nreturn reached"
    assert javascript(page, attempts(IN_WORKERS | IN_PAGES, listener, server) + leave)["said"] == "[]"
    assert (listener.reached, page.url, len(page.context.pages)) == ([], before, 1)


def test_the_same_attempts_succeed_in_a_plain_page(
    chromium: Callable[[str | None], Browser], listener: Listener, server: Server
) -> None:
    """Else the tests around it would prove nothing."""
    context = new_profile(chromium(None))
    plain = context.new_page()
    in_worker = attempts(IN_WORKERS, listener, server, 30) + "postMessage(reached);"
    in_page = attempts(IN_PAGES, listener, server, 30)
    listener.page = f"""<!doctype html><p id="results"></p><script>(async () => {{
      const code = {json.dumps(f"(async () => {{ {in_worker} }})()")};
      const worker = new Worker(URL.createObjectURL(new Blob([code], {{ type: "text/javascript" }})));
      const all = new Promise((resolve) => (worker.onmessage = ({{ data }}) => data.length && resolve(data)));
      {in_page}
      globalThis.found = [...reached, ...(await all)];
    }})();</script>"""
    plain.goto(f"http://127.0.0.1:{listener.port}/")
    wait_until(plain, "globalThis.found")
    assert {*IN_WORKERS, *IN_PAGES} - set(plain.evaluate("found")) <= {
        *NOTICED,
        "own server",
        "WebTransport",
    }  # which serves its own pages only
    noticed = [*(f"GET /{path} " for path in NOTICED.values()), "udp"]  # packets of WebTransport
    wait_for(lambda: all(part in " ".join(listener.reached) for part in noticed))
    context.close()


PYTHON_ATTEMPTS = """
import asyncio
HTTP, PORT = "http://127.0.0.1:%(port)d/", %(port)d
async def attempt(run):
    try:
        result = run()
        if hasattr(result, "__await__"):
            result = await asyncio.wait_for(result, 2)
        return result
    except BaseException as error:
        return error
def urllib():
    import urllib.request
    return urllib.request.urlopen(HTTP + "urllib", timeout=2).status
def sockets():
    import socket
    return socket.create_connection(("127.0.0.1", PORT), timeout=2).send(b"GET /sockets HTTP/1.1\\r\\n\\r\\n")
def through_js(name):
    import js
    return getattr(js, name)
def pyfetch():
    from pyodide.http import pyfetch
    return pyfetch(HTTP + "pyfetch")
def open_url():
    from pyodide.http import open_url
    return open_url(HTTP + "open_url").read()
def run_js(code):
    from pyodide.code import run_js
    return run_js(code)
def constructor():
    import js
    return js.constructor.constructor("return globalThis")()
def scope():
    import pyodide_js
    return pyodide_js._api.config.jsglobals.fetch
def package():
    import pyodide_js
    return pyodide_js.loadPackage(HTTP + "package-1-py3-none-any.whl", checkIntegrity=False)
def library():
    import ctypes
    return ctypes.CDLL(HTTP + "library.so")
def worker_scope():
    from pyodide.ffi import create_proxy, to_js
    seen = []
    to_js([1]).forEach(create_proxy(lambda this, *_: seen.append(this), capture_this=True))
    return seen[0].fetch
def shell():
    import os, subprocess
    return subprocess.run(["ls"])
tries = {"urllib": urllib, "sockets": sockets, "pyfetch": pyfetch, "open_url": open_url, "scope": scope,
  "run_js": lambda: run_js("fetch('" + HTTP + "run_js')"), "constructor": constructor,
  "library": library, "shell": shell, "worker": worker_scope}
for name in "fetch XMLHttpRequest WebSocket postMessage document parent localStorage indexedDB globalThis self".split():
    tries["js." + name] = lambda name=name: through_js(name)
reached = [name for name, run in tries.items() if not isinstance(await attempt(run), BaseException)]
await attempt(package)
reached
"""


def test_python_reaches_nothing(page: Page, listener: Listener, server: Server) -> None:
    ran = python(page, PYTHON_ATTEMPTS % {"port": listener.port})
    assert ran["said"].splitlines()[-1] == "[]"
    assert listener.reached == []
    # Where there is a network, Python's own ways do reach the listener.
    listener.page = "hello"
    with urllib.request.urlopen(f"http://127.0.0.1:{listener.port}/", timeout=30) as answer:
        assert answer.read() == b"hello"
    assert listener.reached


def test_limits_of_output_and_memory(page: Page) -> None:
    python(page, "before = 1")
    flood = python(page, "while True: print('x' * 99)")
    assert flood["said"].endswith("Stopped: there was too much output.")
    assert len(flood["said"]) < 11_000
    assert python(page, "before")["said"] == "1"  # the session goes on
    assert "memory was used up" in python(page, "a = []\nwhile True: a.append(bytearray(10_000_000))")["said"]
    again = python(page, "'before' in globals()")
    assert "anew" in again["said"]
    assert again["said"].endswith("False")
    flood = javascript(page, "for (;;) if (console.log('x'.repeat(1000)) === false) return 'told'")
    assert "too much output" in flood["said"]


def test_a_chat_does_not_see_another_ones_variables(page: Page) -> None:
    python(page, "secret = 1")
    seen = page.evaluate("""async () => {
      const { signal } = new AbortController();
      const other = await source.tools[0].run({ code: "'secret' in globals()" }, { signal, chat: "two" });
      source.end("two");
      return other.text;
    }""")
    assert seen == "False"


@pytest.mark.parametrize(("language", "loop"), [("python", "print('begun')\nwhile True: pass"),
                                                ("javascript", "console.log('begun'); for (;;);")])  # fmt: skip
def test_an_endless_loop_is_killed(page: Page, language: str, loop: str) -> None:
    page.evaluate("() => source.end()")
    ran = page.evaluate("([name, text]) => run(name, text, code.codeTools({ seconds: 1 }))", [language, loop])
    assert ran["said"].endswith("begun\nStopped: the code ran too long.")
    assert ran["frames"] == 0
    wait_for(lambda: page.evaluate("true") and not page.workers)


def test_stop_kills_what_runs(page: Page) -> None:
    stopped = page.evaluate("""async () => {
      source.end();
      while (document.querySelector("iframe")) await new Promise((resolve) => setTimeout(resolve, 10));
      const running = run("javascript", "for (;;);").then(() => "ended", (error) => error.message);
      while (!document.querySelector("iframe")) await new Promise((resolve) => setTimeout(resolve, 10));
      stopping.abort(new Error("stopped"));
      return [await running, document.querySelectorAll("iframe").length];
    }""")
    assert stopped == ["stopped", 0]
