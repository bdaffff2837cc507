"""Packages of an index in the page's sandbox: found, asked for, fetched, stored and installed."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route

from tests.support.browser import wait_until
from tests.support.code_page import open_code_page, prepare
from tests.support.package_index import package_index
from tools.serve import Server
from tools.wheel import wheel

RUN_RULES = "import word_rules; word_rules.RULES"
STORES = "async () => (await caches.keys()).filter((name) => name.startsWith('wisp-sandbox-packages'))"
INTERPRETERS = "() => document.querySelectorAll('iframe').length"
BOTH = b"import cats, dogs; COUNT = len(cats.word_lists.ANIMALS)"
RULES = b"import word_lists, six\nRULES = [one + '!' for one in word_lists.ANIMALS]"


@pytest.fixture(scope="module")
def page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """A page with the code tools, whose service worker has stored what they need."""
    made = open_code_page(chromium(None), server)
    prepare(made)
    yield made
    made.context.close()


@pytest.fixture(scope="module")
def index() -> Iterator[tuple[str, list[str]]]:
    """An index with PyPI's simple API on a server of its own: its address, and the paths that were asked for."""
    with package_index(
        {
            "word-rules": wheel("word_rules", "1.2", {"word_rules.py": RULES}, {}, ("word-lists>=2", "six")),
            "word-lists": [
                wheel("word_lists", "1.0", {"word_lists.py": b"ANIMALS = ('cow',)"}, {}),
                wheel("word_lists", "2.0", {"word_lists.py": b"ANIMALS = ('cat', 'dog')"}, {}),
            ],
            "clashing": wheel("clashing", "1.0", {"clashing": b"", "clashing/__init__.py": b""}, {}),
            "birds": [
                wheel("birds", "1.0", {"birds.py": b"NAMES = ('wren',)"}, {}),
                wheel("birds", "2.0", {"birds.py": b"NAMES = ('wren', 'kite')"}, {}),
            ],
            "slow": wheel("slow", "1.0", {"slow.py": b""}, {}),
            "heavy": bytes(100_000_000) + wheel("heavy", "1.0", {"heavy.py": b""}, {}),
            "menagerie": wheel("menagerie", "1.0", {"menagerie.py": BOTH}, {}, ("cats", "dogs")),
            "cats": wheel("cats", "1.0", {"cats.py": b"import word_lists"}, {}, ("word-lists",)),
            "dogs": wheel("dogs", "1.0", {"dogs.py": b"import word_lists"}, {}, ("word-lists",)),
            "torn": wheel("torn", "1.0", {"torn.py": b""}, {}),
        },
        torn=("torn",),
        compiled=("fast",),
        malformed=("astray",),
    ) as found:
        yield found


WITH_PACKAGES = """async ([index, packages, text, answer, isPrivate]) => {
  globalThis.indexed ??= code.codeTools({ seconds: 60, index });
  const { signal } = new AbortController();
  const asked = [];
  const confirm = async (question) => (asked.push(question), answer);
  const run = indexed.tools[0].run({ code: text, packages }, { signal, chat: "packages", confirm, isPrivate });
  const { text: said } = await run.catch((error) => ({ text: error.message }));
  return [said, asked];
}"""


Run = Callable[..., list[Any]]


@pytest.fixture
def run(page: Page, index: tuple[str, list[str]]) -> Iterator[Run]:
    """Runs code with packages: what the model is told, and what the user was asked.

    Starting Python takes most of the time. So tests share the session, with what earlier ones have installed there;
    nothing is stored when one begins.
    """

    def run(packages: object, text: str = RUN_RULES, answer: bool = True, is_private: bool = False) -> Any:
        return page.evaluate(WITH_PACKAGES, [index[0], packages, text, answer, is_private])

    index[1].clear()
    yield run
    page.context.set_offline(False)
    page.evaluate("() => code.allowPackages(false)")
    wait_until(page, f"!(await ({STORES})()).length")


def test_without_a_network_the_model_is_told_what_lacks(page: Page, run: Run) -> None:
    """What looks for packages is fetched when it is first needed."""
    page.evaluate("() => code.allowPackages(true)")
    page.context.set_offline(True)
    assert run(["surely-none"], "1")[0].endswith("the page's micropip does not start. Check the network.")


def test_packages_of_an_index(page: Page, index: tuple[str, list[str]], run: Run) -> None:
    """Only where the user allows it; with what they need; stored for use without a network."""
    url, paths = index
    assert "not in this sandbox" in run(["word-rules"])[0]  # off by default
    assert paths == []
    assert "packages" not in page.evaluate("() => Object.keys(indexed.tools[0].parameters.properties)")
    page.evaluate("() => code.allowPackages(true)")
    assert "packages" in page.evaluate("() => Object.keys(indexed.tools[0].parameters.properties)")
    assert "or from PyPI where the call names them in packages" in run([])[0]
    said, asked = run(["word-rules"], answer=False)
    assert (said[:22], paths) == ("The user did not allow", [])
    host = url.split("/")[2]
    assert asked == [f"Fetch word-rules and what they need from {host}? These servers learn the names."]
    assert run(["word-rules"])[0] == "['cat!', 'dog!']"
    names = {path.split("/")[2] for path in paths}
    assert names == {"word-rules", "word-lists", "word_rules-1.2-py3-none-any.whl", "word_lists-2.0-py3-none-any.whl"}
    assert run(["word-rules"]) == ["['cat!', 'dog!']", []]  # nothing is asked for twice
    page.evaluate("() => indexed.end()")
    page.context.set_offline(True)
    said, asked = run(["word-rules"])
    assert (said.endswith("['cat!', 'dog!']"), asked) == (True, [])
    assert "cannot be reached" in run(["word-lists"], "1")[0]
    page.context.set_offline(False)
    assert "No index has surely-none" in run(["surely-none"])[0]
    assert "no wheel of fast that runs here" in run(["fast"])[0]
    assert "Invalid checksum" in run(["torn"])[0]
    assert 'not "https://x.example/y.whl"' in run(["https://x.example/y.whl"])[0]
    assert "Invalid URL" in run(["astray"])[0]
    page.evaluate("() => code.allowPackages(false)")
    wait_until(page, f"!(await ({STORES})()).length")


def test_a_package_that_two_others_need_is_fetched_once(page: Page, index: tuple[str, list[str]], run: Run) -> None:
    page.evaluate("() => code.allowPackages(true)")
    assert run(["menagerie"], "import menagerie; menagerie.COUNT")[0] == "2"
    assert len(index[1]) == len({*index[1]}) == 8
    assert page.evaluate(INTERPRETERS) == 2, "the code's, and what looks for packages, which the next call uses, too"


def test_another_version_of_an_installed_package(page: Page, run: Run) -> None:
    """Python starts anew for it, and only for it."""
    page.evaluate("() => code.allowPackages(true)")
    code = "import birds; birds.NAMES"
    assert run(["birds==1.0"], code)[0] == "('wren',)"
    assert run(["birds==2.0"], code)[0].endswith("are gone.)\n('wren', 'kite')")
    assert run(["six", "birds>=2"], code)[0] == "('wren', 'kite')"


def test_a_wheel_that_cannot_be_installed_is_tried_again(page: Page, run: Run) -> None:
    page.evaluate("() => code.allowPackages(true)")
    for _ in range(2):
        assert "clashing-1.0-py3-none-any.whl cannot be installed" in run(["clashing"], "1")[0]


def test_what_a_call_asks_for_is_limited(page: Page, index: tuple[str, list[str]], run: Run) -> None:
    page.evaluate("() => code.allowPackages(true)")
    for packages in ("word-lists", {"0": "word-lists"}, ["word-lists"] * 11):
        assert run(packages, "1") == ["packages is a list of at most 10 names.", []]
    for name in ("a" * 101, "", 1, None):
        said, asked = run([name], "1")
        assert ("such as" in said, len(said) < 250, asked) == (True, True, [])
    assert index[1] == []
    assert "more than 100 MB" in run(["heavy"], "1")[0]
    assert "micropip is not in this sandbox" in run([], "import micropip")[0]


def test_a_look_up_that_waits_for_another_one_is_stopped_at_once(page: Page, index: tuple[str, list[str]]) -> None:
    """The other one goes on."""
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/simple/slow/", hold)
    found = page.evaluate(
        """async (index) => {
          const ask = (name, { signal }) => code.wheelsOf([name], { index, signal, confirm: async () => true });
          const stop = new AbortController();
          globalThis.first = ask("slow", new AbortController()).then((wheels) => wheels.length);
          const second = ask("dogs", stop).catch((error) => error.message);
          setTimeout(() => stop.abort(new Error("stopped")), 50);
          return Promise.race([first, second]);
        }""",
        index[0],
    )
    assert found == "stopped"
    while not held:
        page.wait_for_timeout(20)
    held[0].continue_()
    page.unroute("**/simple/slow/")
    assert page.evaluate("first") == 1


def test_packages_of_another_pyodide_are_deleted(page: Page, run: Run) -> None:
    page.evaluate("async () => (code.allowPackages(true), await caches.open('wisp-sandbox-packages-old'))")
    run(["cats"], "1")
    (store,) = page.evaluate(STORES)
    assert re.fullmatch(r"wisp-sandbox-packages(-[0-9a-f]{12}){2}", store)


def test_what_a_private_chat_fetches_is_not_stored(page: Page, run: Run) -> None:
    page.evaluate("() => code.allowPackages(true)")
    (question,) = run(["dogs"], "import dogs", is_private=True)[1]
    assert question.startswith("Fetch dogs and what they need")
    assert page.evaluate(INTERPRETERS) == 1, "what has looked for them has ended"
    assert run(["dogs"], "dogs.word_lists.ANIMALS", is_private=True) == ["('cat', 'dog')", []]  # the session has it
    (store,) = page.evaluate(STORES)
    assert page.evaluate("async (name) => (await (await caches.open(name)).keys()).length", store) == 0
    page.evaluate("() => (indexed.end(), delete globalThis.indexed)")
    assert len(run(["dogs"], "1", answer=False, is_private=True)[1]) == 1


def test_no_question_appears_after_a_stop(page: Page) -> None:
    """It would wait for an answer that nobody needs."""
    asked = page.evaluate("""async () => {
      const card = new code.CallCard({ name: "python", arguments: "{}", state: "running" });
      const stopped = AbortSignal.abort(new Error("stopped"));
      const confirmed = card.confirm("Fetch?", stopped).then(String, (error) => error.message);
      return [card.element.querySelector(".call-question button") === null, await confirmed];
    }""")
    assert asked == [True, "stopped"]
