"""Install the JavaScript packages exactly as package-lock.json says."""

import functools
import hashlib
import re
import shutil
from pathlib import Path

from tools.failure import Failure, run, say
from tools.paths import NODE_MODULES, ROOT

OLDEST_NODE = 20


def node() -> str:
    """Return the path of Node; raise Failure if it is missing or too old."""
    found = shutil.which("node")
    if not found:
        raise Failure(
            f"Node is not installed; install Node {OLDEST_NODE} or later from https://nodejs.org and try again"
        )
    _check_version(found)
    return found


@functools.cache
def _check_version(path: str) -> None:
    """Raise Failure if this Node is too old. Asking it takes a third of a short script's time."""
    version = run([path, "--version"], "Node does not start; install it again from https://nodejs.org").strip()
    major = re.match(r"v(\d+)", version)
    if not major or int(major[1]) < OLDEST_NODE:
        raise Failure(f"Node {version} is too old; install Node {OLDEST_NODE} or later from https://nodejs.org")


def ensure_node_modules(*, dev: bool = False) -> Path:
    """Return node_modules, installed exactly as package-lock.json says; without `dev` only what the build needs."""
    lock = hashlib.sha256((ROOT / "package-lock.json").read_bytes()).hexdigest()
    stamp = NODE_MODULES / ".wisp-stamp"
    installed = stamp.read_text() if stamp.exists() else ""
    everything, for_the_build = lock, f"{lock} without dev"
    if installed == everything or (not dev and installed == for_the_build):
        return NODE_MODULES
    node()
    npm = shutil.which("npm")
    if not npm:
        raise Failure(
            "npm is not installed; it comes with Node from https://nodejs.org (on Debian: apt-get install npm)"
        )
    say("Installing the npm packages ...")
    command = [npm, "ci", *([] if dev else ["--omit=dev"])]
    run(command, "Cannot install the npm packages; check the network and try again", cwd=ROOT)
    stamp.write_text(everything if dev else for_the_build)
    return NODE_MODULES
