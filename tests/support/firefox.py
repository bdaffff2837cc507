"""Firefox as Debian has it, driven by WebDriver BiDi: no other driver is needed.

https://w3c.github.io/webdriver-bidi/ has the commands.
"""

import ctypes.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

from tests.support.browser import install_by_apt, lavapipe_icd, shader_cache
from tests.support.waiting import HANG_S, wait_for

PREFERENCES = {
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "javascript.options.wasm_optimizingjit": False,  # optimizing Pyodide takes ten times what the tests then run
    "remote.active-protocols": 1,  # BiDi
    "services.settings.server": "data:,#remote-settings-dummy/v1",  # no experiments
    "ui.prefersReducedMotion": 1,  # without a GPU, drawing an animation keeps a core busy
}
RETURN = "\ue006"  # WebDriver's key


def firefox_path() -> str:
    """The installed Firefox, or the one that apt installs."""
    found = shutil.which("firefox-esr") or shutil.which("firefox")
    if not found and install_by_apt("firefox-esr"):
        found = shutil.which("firefox-esr")
    if not found:
        raise RuntimeError("Firefox is not installed; on Debian: apt-get install firefox-esr")
    return found


def lavapipe_environment() -> dict[str, str]:
    """The environment in which Firefox finds lavapipe, by the system's Vulkan loader."""
    if not ctypes.util.find_library("vulkan") and not install_by_apt("libvulkan1"):
        raise RuntimeError("The Vulkan loader is not installed; on Debian: apt-get install libvulkan1")
    icd = str(lavapipe_icd())
    return {
        **{"VK_ICD_FILENAMES": icd, "VK_DRIVER_FILES": icd},
        **{"GALLIVM_PERF": "nopt", "MESA_SHADER_CACHE_DIR": f"{shader_cache()}-firefox"},
    }


class Tab:
    """A tab of the browser."""

    def __init__(self, browser: "Firefox", context: str) -> None:
        self.browser, self.context = browser, context

    def open(self, url: str) -> None:
        """Go to an address."""
        self.browser.call("browsingContext.navigate", context=self.context, url=url, wait="complete")

    def reload(self) -> None:
        """Load the page again."""
        self.browser.call("browsingContext.reload", context=self.context, wait="complete")

    def evaluate(self, function: str, *arguments: Any) -> Any:
        """Call a JavaScript function; arguments and result are JSON."""
        code = (
            f"async (...texts) => JSON.stringify(await ({function})(...texts.map((text) => JSON.parse(text)))) ?? null"
        )
        answer = self.browser.call(
            "script.callFunction",
            functionDeclaration=code,
            arguments=[{"type": "string", "value": json.dumps(argument)} for argument in arguments],
            target={"context": self.context},
            awaitPromise=True,
        )
        if answer["type"] == "exception":
            raise AssertionError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"].get("value") or "null")

    def text(self, selector: str) -> str:
        """The text of the last element that matches; "" if there is none."""
        found: str = self.evaluate("(all) => [...document.querySelectorAll(all)].at(-1)?.innerText ?? ''", selector)
        return found

    def type(self, selector: str, text: str) -> None:
        """Type into an element, and press Enter."""
        self.browser.call("browsingContext.activate", context=self.context)
        self.evaluate("(one) => document.querySelector(one).focus()", selector)
        keys = [{"type": kind, "value": key} for key in text + RETURN for kind in ("keyDown", "keyUp")]
        source = {"type": "key", "id": "keyboard", "actions": keys}
        self.browser.call("input.performActions", context=self.context, actions=[source])


class Firefox:
    """A running Firefox."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket, self._id = socket, 0
        self.call("session.new", capabilities={})

    def call(self, method: str, **parameters: Any) -> Any:
        """Send a command and return its result."""
        self._id += 1
        self._socket.send(json.dumps({"id": self._id, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv(timeout=HANG_S))
            if answer.get("id") == self._id:
                break
        if answer["type"] == "error":
            raise AssertionError(f"{method}: {answer['error']}: {answer['message']}")
        return answer["result"]

    def tab(self) -> Tab:
        """Open a tab."""
        return Tab(self, self.call("browsingContext.create", type="tab")["context"])


@contextmanager
def running_firefox(*, webgpu: bool = False) -> Iterator[Firefox]:
    """A Firefox with a fresh profile, without a window. `webgpu`: on lavapipe, else it has none."""
    preferences = PREFERENCES | {"dom.webgpu.enabled": webgpu, "gfx.webgpu.ignore-blocklist": webgpu}
    environment = {**os.environ, **(lavapipe_environment() if webgpu else {})}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in preferences.items()]
        (Path(folder) / "user.js").write_text("\n".join(lines))
        log = Path(folder) / "firefox.log"
        command = [firefox_path(), "--headless", "--no-remote", "--profile", folder, "--remote-debugging-port", "0"]
        with (
            log.open("w") as output,
            subprocess.Popen(command, stdout=output, stderr=output, env=environment) as process,
        ):
            try:
                wait_for(lambda: "WebDriver BiDi listening" in log.read_text())
                address = re.search(r"WebDriver BiDi listening on (ws://\S+)", log.read_text())
                assert address
                with connect(f"{address[1]}/session", max_size=None, open_timeout=HANG_S) as socket:
                    yield Firefox(socket)
            finally:
                process.terminate()
