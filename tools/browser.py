"""Find or install the Chromium that tests, `chat` and `bench` use."""

import functools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.environment import ensure_venv
from tools.failure import Failure, say
from tools.paths import cache_dir

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--enable-unsafe-webgpu",
)
REAL_GPU = ("--enable-features=Vulkan", "--use-angle=vulkan", "--ignore-gpu-blocklist")  # Linux hides it otherwise
START_S = 60.0  # for the browser to start once
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


def find_browser() -> str | None:
    """Return the path of an installed Chromium or Chrome; $WISP_BROWSER overrides it."""
    named = os.environ.get("WISP_BROWSER")
    if named:
        return named
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    return found or (MAC if os.path.exists(MAC) else None) or _playwrights_own()


def launch_options() -> dict[str, Any]:
    """Return Playwright's options of a headless browser: its path, flags(), and its sandbox wherever that can run."""
    browser = ensure_browser()
    return {"executable_path": browser, "args": flags(), "chromium_sandbox": has_sandbox(browser)}


@functools.cache
def has_sandbox(browser: str) -> bool:
    """Return whether the browser's sandbox can run: not as root, nor where the system allows it no namespaces."""
    if sys.platform != "linux":
        return True
    if os.geteuid() == 0:
        why = "as root"
    elif _fails_without_sandbox(browser):
        why = "because this system does not let it start; see your distribution about unprivileged user namespaces"
    else:
        return True
    say(f"The headless browser runs without its sandbox {why}.")
    return False


def _fails_without_sandbox(browser: str) -> bool:
    """Start the browser once; return whether it complains about its sandbox."""
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, "--headless", "--disable-gpu", f"--user-data-dir={profile}", "--dump-dom", "about:blank"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return False  # whoever starts it next reports why
    return done.returncode != 0 and "sandbox" in done.stderr.lower()


def flags() -> list[str]:
    """Return the flags of a headless browser with WebGPU, on the real GPU if the machine has one, else in software."""
    found = [*FLAGS]
    if sys.platform == "linux" and (Path("/dev/dri/renderD128").exists() or Path("/dev/nvidia0").exists()):
        found += REAL_GPU
    return found


def ensure_browser() -> str:
    """Return the path of a browser; install one if there is none."""
    found = find_browser()
    if found:
        return found
    if shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        say("Installing Chromium (apt-get install chromium) ...")
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for arguments in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
            subprocess.run(["apt-get", "-qq", *arguments], env=env, capture_output=True, check=False)
        found = find_browser()
    if not found:
        say("Installing Chromium (playwright install chromium) ...")
        python = ensure_venv(dev=True)
        subprocess.run(
            [str(python), "-m", "playwright", "install", "chromium"],
            env=_playwright_env(),
            capture_output=True,
            check=False,
        )
        found = find_browser()
    if not found:
        raise Failure(
            "No browser to run in and none could be installed; install Chromium or Google Chrome "
            "(on Debian: apt-get install chromium), or name one in WISP_BROWSER"
        )
    return found


def _playwright_env() -> dict[str, str]:
    return {**os.environ, "PLAYWRIGHT_BROWSERS_PATH": str(cache_dir("playwright"))}


def _playwrights_own() -> str | None:
    patterns = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/*.app/Contents/MacOS/*",
                "chromium-*/chrome-win*/chrome.exe")  # fmt: skip
    found = sorted(str(path) for pattern in patterns for path in cache_dir("playwright").glob(pattern))
    return found[-1] if found else None
