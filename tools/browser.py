"""Find or install the Chromium that tests, `chat` and `bench` use."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

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
MAC = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"


def find_browser() -> str | None:
    """Return the path of an installed Chromium or Chrome; $WISP_BROWSER overrides it."""
    named = os.environ.get("WISP_BROWSER")
    if named:
        return named
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    return found or (MAC if os.path.exists(MAC) else None) or _playwrights_own()


def flags() -> list[str]:
    """Return the flags of a headless browser with WebGPU, on the real GPU if the machine has one, else in software."""
    found = [*FLAGS]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        found.append("--no-sandbox")
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
