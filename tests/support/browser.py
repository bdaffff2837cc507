"""Real browsers for the tests: Chromium on each software GPU, and pages that run the engine in them."""

import fcntl
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, Playwright

from tests.support.waiting import HANG_S
from tools.browser import REAL_GPU, launch_options
from tools.browser import flags as browser_flags
from tools.paths import ROOT, cache_dir

ADAPTERS = ("swiftshader", "lavapipe")
LAVAPIPE = Path(__file__).parent / "lavapipe"
PAGE_MODULES = Path(__file__).parent / "page"
# V8 compiles WebAssembly quickly, and does not optimize it: optimizing Pyodide takes more than most tests run of it.
# Tests of the CPU engine's results have V8 as users have it: the adapter "cpu".
COMPILE_QUICKLY = "--js-flags=--liftoff-only"
# Kernels begin with a loop that zeroes their workgroup memory. Through this extension SwiftShader would write each word
# with code of its own, and take four times as long to compile attention.
ZERO_IN_A_LOOP = "--disable-dawn-features=use_vulkan_zero_initialize_workgroup_memory_extension"

# Each window would load two pages for the popup of its address bar, which takes 0.6 s of a processor.
WITHOUT = ("WebUIOmniboxPopup", "WebUIOmniboxAimPopup")


def launch(playwright: Playwright, adapter: str | None, extra_flags: tuple[str, ...] = (), **options: Any) -> Browser:
    """A headless Chromium whose WebGPU runs on `adapter`: "swiftshader" (no shader-f16, subgroups of 4), "lavapipe"
    (shader-f16, subgroups of 4, 128 MiB bindings), "lavapipe-wide" and "lavapipe-optimized" (subgroups of 8), or
    without WebGPU: None, and "cpu", where V8 optimizes WebAssembly.

    Most tests compile more than they run. Lavapipe compiles a shader in half the time when it does not optimize it, and
    runs it at half the speed. It writes each memory access once for every lane of a vector: vectors of 128 bits, which
    are subgroups of 4, take two thirds of the time of 256 bits.
    """
    return playwright.chromium.launch(**{**_start_options(adapter, extra_flags), **options})


def open_stored(playwright: Playwright, folder: Path) -> BrowserContext:
    """The profile of a folder, in a browser of its own without WebGPU."""
    made = playwright.chromium.launch_persistent_context(folder, **_start_options(None))
    made.set_default_timeout(1000 * HANG_S)
    return made


def _start_options(adapter: str | None, extra_flags: tuple[str, ...] = ()) -> dict[str, Any]:
    """Playwright's options of a browser on an adapter of launch()."""
    flags = [flag for flag in browser_flags() if flag not in REAL_GPU]
    env: dict[str, str | float | bool] = {**os.environ}
    without = [*WITHOUT]
    if adapter in (None, "cpu"):
        flags = [flag for flag in flags if flag != "--enable-unsafe-webgpu"]
        without.append("WebGPU")
    if adapter in ("lavapipe", "lavapipe-wide", "lavapipe-optimized"):
        icd = str(lavapipe_icd())
        env |= {"VK_ICD_FILENAMES": icd, "VK_DRIVER_FILES": icd, "MESA_SHADER_CACHE_DIR": str(shader_cache())}
        if adapter != "lavapipe-optimized":
            env["GALLIVM_PERF"] = "nopt"
        if adapter == "lavapipe":
            # Mesa's cache does not tell widths apart: code for the other one ends the GPU process.
            env |= {"LP_NATIVE_VECTOR_WIDTH": "128", "MESA_SHADER_CACHE_DIR": f"{shader_cache()}-narrow"}
        flags += REAL_GPU
    if adapter == "swiftshader":
        flags.append(ZERO_IN_A_LOOP)
    if adapter != "cpu":
        flags.append(COMPILE_QUICKLY)
    flags += [f"--disable-features={','.join(without)}", *extra_flags]
    return {**launch_options(), "args": flags, "env": env}


class Browsers:
    """The run's browser on each adapter, started when a test asks for it."""

    MOST = 2  # browsers that stay open between files: each with an engine's page takes 400 MB

    def __init__(self, playwright: Playwright) -> None:
        self._playwright = playwright
        self._started: dict[str | None, Browser] = {}  # ordered by last use

    def __call__(self, adapter: str | None = "swiftshader") -> Browser:
        """Return the open browser on an adapter of launch()."""
        browser = self._started.pop(adapter, None)
        if browser is None or not browser.is_connected():
            browser = launch(self._playwright, adapter)
        self._started[adapter] = browser
        return browser

    def close(self, most: int = 0) -> None:
        """Close all browsers but the last used ones."""
        while len(self._started) > most:
            self._started.pop(next(iter(self._started))).close()


def new_profile(browser: Browser, *, service_worker: bool = True, **options: Any) -> BrowserContext:
    """A fresh profile: empty caches, empty IndexedDB. Its pages move nothing: software draws every frame.

    Without `service_worker` it is a browser that has none, which saves half a second of a processor in each visit.
    """
    made = browser.new_context(**{"reduced_motion": "reduce", **options})
    made.set_default_timeout(1000 * HANG_S)
    if not service_worker:
        made.add_init_script("delete Navigator.prototype.serviceWorker")
    return made


def shader_cache() -> Path:
    """Mesa's cache of shaders that lavapipe has compiled, shared by all browsers of all runs."""
    named = os.environ.get("MESA_SHADER_CACHE_DIR")
    return Path(named) if named else cache_dir("lavapipe-4") / "shaders"


def lavapipe_icd() -> Path:
    """The driver description of lavapipe for Chromium, built once into the user's cache."""
    work = cache_dir("lavapipe-4")
    icd = work / "lavapipe" / "icd.json"
    if not icd.exists():
        _need("cc", "gcc libc6-dev")
        done = _build_lavapipe(work)
        if done.returncode and install_by_apt("mesa-vulkan-drivers"):
            done = _build_lavapipe(work)
        if done.returncode:
            raise RuntimeError(
                "The software GPU with shader-f16 cannot be made; as root run: "
                f"apt-get install -y mesa-vulkan-drivers gcc libc6-dev\n{done.stdout}{done.stderr}"
            )
    return icd


def _build_lavapipe(work: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["sh", LAVAPIPE / "build.sh", work], capture_output=True, text=True, check=False)


def _need(command: str, packages: str) -> None:
    if not shutil.which(command):
        install_by_apt(*packages.split())


def install_by_apt(*packages: str) -> bool:
    """Install system packages where that is possible. One test worker at a time: apt fails beside another apt."""
    if not shutil.which("apt-get") or os.geteuid() != 0:
        return False
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages]
    with (Path(tempfile.gettempdir()) / "wisp-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(["apt-get", "-qq", "update"], env=env, capture_output=True, check=False)
        return subprocess.run(install, env=env, capture_output=True, check=False).returncode == 0


def watch(page: Page) -> list[str]:
    """Collect the page's console errors and uncaught exceptions in the returned list."""
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    return errors


def open_engine_page(browser: Browser, url: str) -> Page:
    """A page with Pyodide, the Python archive, numpy, regex and `wispReplay`, ready for run_python."""
    page = new_profile(browser).new_page()
    errors = watch(page)
    page.goto(f"{url}tests/engine.html")
    try:
        wait_until(page, "globalThis.ready")
    except Exception as error:
        raise RuntimeError(f"The engine page does not start: {errors}") from error
    paths = [*PAGE_MODULES.glob("*.py"), ROOT / "bench" / "__init__.py", ROOT / "bench" / "shapes.py"]
    modules = {f"{path.relative_to(ROOT)}": path.read_text(encoding="utf-8") for path in paths}
    run_python(page, INSTALL, {"modules": modules})
    return page


def wait_until(page: Page, condition: str, timeout_s: float = HANG_S) -> None:
    """Wait until a JavaScript expression is true. Playwright's wait_for_function needs eval, which the page forbids."""
    code = f"""async (ms) => {{
        const end = Date.now() + ms; // by the page's clock, which a test may have moved
        while (!({condition})) {{
            if (Date.now() > end) return false;
            await new Promise((resolve) => setTimeout(resolve, 25));
        }}
        return true;
    }}"""
    if not page.evaluate(code, 1000 * timeout_s):
        raise TimeoutError(f"not true within {timeout_s:.0f} s: {condition}")


def run_python(page: Page, code: str, args: dict[str, Any] | None = None) -> Any:
    """Run Python in an engine page. `args` (JSON) become its variables; `await` works at the top level.

    Returns the value of the last expression, which must be JSON; a Python exception raises AssertionError here.
    """
    result = page.evaluate("([code, args]) => runPython(code, args)", [code, args or {}])
    if "error" in result:
        raise AssertionError(f"Python in the page raised:\n{result['error']}")
    return json.loads(result["ok"])


INSTALL = """
import sys
from pathlib import Path
for name, source in modules.items():
    path = Path("/page") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
sys.path.append("/page")
"""
CALL = """
import importlib, inspect
result = getattr(importlib.import_module(f"tests.support.page.{module}"), function)(**arguments)
await result if inspect.isawaitable(result) else result
"""


def call_python(page: Page, name: str, **arguments: Any) -> Any:
    """Call "module.function" of tests/support/page in an engine page; arguments and result are JSON."""
    module, _, function = name.rpartition(".")
    return run_python(page, CALL, {"module": module, "function": function, "arguments": arguments})


def wait_for_adapter(page: Page) -> dict[str, Any]:
    """Describe the WebGPU adapter. A browser that has just started may not have one yet."""
    return page.evaluate(
        """async () => {
            for (let i = 0; i < 240; i++) {
                const adapter = await navigator.gpu?.requestAdapter();
                if (adapter) return {vendor: adapter.info.vendor, architecture: adapter.info.architecture,
                                     description: adapter.info.description, features: [...adapter.features]};
                await new Promise((resolve) => setTimeout(resolve, 250));
            }
            throw new Error("no WebGPU adapter");
        }"""
    )
