"""The campaign's browser with two tabs, its servers, and a copy of the build whose worker obeys worker.js."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import openai
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page, Playwright

from tests.faults.requests import BRIDGED, MODEL, OTHER, Outcome, Request
from tests.support import browser as browsers
from tests.support.faulty_server import FaultyServer, File
from tests.support.openai_client import open_client_page
from tests.support.waiting import HANG_S, wait_for
from tools.api import ApiServer
from tools.paths import ROOT

# Else Chromium refuses WebGPU for a while after the second crash of the GPU process, and ends after some more.
ANY_CRASHES = ("--disable-domain-blocking-for-3d-apis", "--disable-gpu-process-crash-limit")
MODELS = ROOT / "static" / "models"
OPTIONS = {"backend": "webgpu", "tune": False, "contextLength": 512}  # of each load
CALL = "async ([name, args]) => (await import('/repo/tests/faults/page.js'))[name](...args)"


class Lab:
    """Everything that a fault may act on."""

    def __init__(self, playwright: Playwright, dist: Path) -> None:
        self._open = ExitStack()
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        site, newer = folder / "site", folder / "next"
        self.worker = obedient_copy(dist, site)
        newer_copy(site, newer)
        mounts = {"tests/": ROOT / "tests" / "support" / "pages", "repo/": ROOT, "next/": newer}
        self.server = ApiServer(site, 0, mounts=mounts)
        self.server.tab_s = HANG_S
        self.server.start()
        self.models = FaultyServer()
        self.files = {name: File((MODELS / f"wisp-mini-{kind}.gguf").read_bytes())
                      for name, kind in ((MODEL, "q4_0"), (OTHER, "q8_0"))}  # fmt: skip
        self.models.files.update({f"{name}.gguf": file for name, file in self.files.items()})
        self.browser = browsers.launch(playwright, "lavapipe-optimized", ANY_CRASHES)  # runs more than it compiles
        self.context = browsers.new_profile(self.browser)
        self.session = self.browser.new_browser_cdp_session()
        self.tabs = [self.open_tab(), self.open_tab()]
        self.expected_of_other: Any = None  # the undisturbed answer of the second model
        self._threads = self._open.enter_context(ThreadPoolExecutor(len(BRIDGED)))
        self._bridged: list[Future[Outcome]] = []

    def close(self) -> None:
        """End the browser and the servers."""
        self.browser.close()
        for server in (self.server, self.models):
            server.shutdown()
            server.server_close()
        self._open.close()

    # -- tabs

    def open_tab(self) -> Page:
        """A tab with the official client, without an engine."""
        tab = open_client_page(self.context, self.server)
        tab.set_default_timeout(2000 * HANG_S)
        return tab

    def call(self, tab: Page, name: str, *args: Any) -> Any:
        """Call a function of page.js in a tab."""
        return tab.evaluate(CALL, [name, args])

    def url(self, name: str) -> str:
        """The address of a model."""
        return self.models.url(f"{name}.gguf")

    def load(self, tab: Page, name: str = MODEL) -> dict[str, Any]:
        """Load a model; return its stats."""
        outcome = self.try_load(tab, name)
        assert "value" in outcome, outcome
        stats: dict[str, Any] = outcome["value"]
        return stats

    def try_load(self, tab: Page, name: str) -> Outcome:
        """The outcome of a load, its stats."""
        outcome: Outcome = self.call(tab, "tryLoad", {"model": self.url(name), "name": name, **OPTIONS})
        return outcome

    def restore(self) -> None:
        """Open again what a fault has closed; connect, load, and lend the engine to the bridge."""
        for i, tab in enumerate(self.tabs):
            if not alive(tab):
                tab.close()
                self.tabs[i] = self.open_tab()
            self.call(self.tabs[i], "connect", "/wisp.js")
        self.load(self.tabs[0])
        if self.server.wait_for_tab(5.0) is None:
            self.lend()

    def lend(self) -> None:
        """Let the first tab answer the bridge's requests."""
        ticket = self.server.tickets.issue("tab")
        url = self.server.url.replace("http", "ws", 1)
        self.call(self.tabs[0], "lend", "/wisp.js", f"{url}v1/bridge?ticket={ticket}")
        assert self.server.wait_for_tab(HANG_S)

    # -- the load

    def start(self, requests: list[list[Request]]) -> None:
        """Send the requests of each tab, and the Python client's, all at once."""
        for tab, asked in zip(self.tabs, requests, strict=True):
            self.call(tab, "start", asked)
        self._bridged = [self._threads.submit(self.ask, body) for body in BRIDGED]

    def ask(self, body: dict[str, Any]) -> Outcome:
        """The outcome of a request of the official Python client to the bridge."""
        client = openai.OpenAI(base_url=f"{self.server.url}v1", api_key=self.server.key, max_retries=0, timeout=HANG_S)
        try:
            answer = client.chat.completions.create(**body)
            return {"value": [[choice.message.content, choice.finish_reason] for choice in answer.choices]}
        except openai.APITimeoutError as error:
            return {"error": "hang", "message": str(error)}
        except openai.APIError as error:
            return {"error": error.code or type(error).__name__, "message": str(error)}
        finally:
            client.close()

    def wait_for_tokens(self, least: int) -> None:
        """Wait until the tabs have received so many parts of answers, or all of them."""
        for _ in itertools.count():
            if sum(self.call(tab, "seen") for tab in self.tabs) >= least or all(f.done() for f in self._bridged):
                return
            self.tabs[0].wait_for_timeout(20)

    def ended(self) -> tuple[list[list[Outcome] | None], list[Outcome]]:
        """The outcomes of each tab, None of one that has ended; and those of the bridge."""
        found = [self.call(tab, "ended") if alive(tab) else None for tab in self.tabs]
        return found, [future.result() for future in self._bridged]

    # -- the worker and the browser's storage

    def tell(self, command: str, *args: Any) -> Any:
        """Send a command to the worker (worker.js)."""
        tab = next(tab for tab in self.tabs if alive(tab))
        return self.call(tab, "tell", self.worker, command, args)

    def end_worker(self) -> None:
        """End the shared worker as a crash does."""
        targets = self.session.send("Target.getTargets")["targetInfos"]
        ours = [t for t in targets if t["type"] == "shared_worker" and urlsplit(t["url"]).path == self.worker]
        for target in ours:
            self.session.send("Target.closeTarget", {"targetId": target["targetId"]})

    def page_session(self, tab: Page) -> Any:
        """A DevTools session of a tab."""
        return self.context.new_cdp_session(tab)

    @property
    def origin(self) -> str:
        """The origin of the pages."""
        return self.server.url.rstrip("/")

    def idle(self) -> bool:
        """Whether no request pins a model."""
        stats = self.call(self.tabs[0], "stats")
        return all(model["requests"] == 0 for model in stats["models"])

    def wait_until_idle(self) -> None:
        """Wait until every request has ended in the engine, too."""
        wait_for(self.idle)


def alive(tab: Page) -> bool:
    """Whether a tab runs."""
    with suppress(PlaywrightError):
        return not tab.is_closed() and tab.url.startswith("http") and tab.evaluate("1") == 1
    return False


def obedient_copy(dist: Path, to: Path) -> str:
    """Copy a build and put worker.js before its worker's script; return that script's path on the server."""
    shutil.copytree(dist, to)
    path = assets(to)["worker"]
    script = to / path
    faults = (Path(__file__).parent / "worker.js").read_text(encoding="utf-8")
    script.write_text(faults + script.read_text(encoding="utf-8"), encoding="utf-8")
    return f"/{path}"


def newer_copy(site: Path, to: Path) -> None:
    """Copy a build as another version: with another archive of Python's modules."""
    shutil.copytree(site, to)
    archive = assets(to)["zip"]
    newer = archive.replace("py-", "py-newer-")
    (to / archive).rename(to / newer)
    for script in ("wisp.js", "sw.js"):
        text = (to / script).read_text(encoding="utf-8")
        (to / script).write_text(text.replace(archive, newer), encoding="utf-8")


def assets(site: Path) -> dict[str, Any]:
    """The assets that a build's SDK names."""
    sdk = (site / "wisp.js").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(sdk[sdk.index("{") : sdk.index("};") + 1])
    return found
