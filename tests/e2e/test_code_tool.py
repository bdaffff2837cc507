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
from tests.support.sandbox_attempts import IN_PAGES, IN_WORKERS, NOTICED, PYTHON_ATTEMPTS, attempts
from tests.support.waiting import wait_for
from tools.serve import Server
from tools.wheel import wheel

BREAK_OFF = """() => {
  const { arrayBuffer } = Response.prototype;
  globalThis.asWritten = () => (Response.prototype.arrayBuffer = arrayBuffer);
  Response.prototype.arrayBuffer = async function () { // of sympy, which is fetched beside what it needs
    if (!this.url.includes("/sympy-")) return arrayBuffer.call(this);
    asWritten();
    throw new TypeError("broken off");
  };
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


def test_nothing_of_the_page_s_own_python_is_left(page: Page) -> None:
    """Both start from the same snapshot."""
    files = "[m.__file__ for m in sys.modules.values() if '/wisp/' in (getattr(m, '__file__', '') or '')]"
    found = python(page, f"import os, sys\n{files}, os.environ['HOME'], 'PYTHONHASHSEED' in os.environ")
    assert found["said"] == "([], '/files', False)"


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
    for missing in ("tensorflow", "jinja2"):
        assert f"{missing} is not in this sandbox" in python(page, f"import {missing}")["said"]


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
    """Nor the random numbers: all start from the same snapshot."""
    drawn = python(page, "import random\nsecret = 1\nrandom.getrandbits(40)")["said"]
    seen = page.evaluate("""async () => {
      const { signal } = new AbortController();
      const code = "import random; ('secret' in globals(), random.getrandbits(40))";
      const other = await source.tools[0].run({ code }, { signal, chat: "two" });
      source.end("two");
      return other.text;
    }""")
    assert re.fullmatch(r"\(False, \d+\)", seen)
    assert drawn not in seen


@pytest.mark.parametrize(("language", "loop"), [("python", "print('begun')\nwhile True: pass"),
                                                ("javascript", "console.log('begun'); for (;;);")])  # fmt: skip
def test_an_endless_loop_is_killed(page: Page, language: str, loop: str) -> None:
    page.evaluate("() => source.end()")
    ran = page.evaluate("([name, text]) => run(name, text, code.codeTools({ seconds: 3 }))", [language, loop])
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
