"""Write requirements.lock: the Python packages of pyproject.toml with the hashes of all files of their versions.

.venv/bin/python -m tools.lock   after versions in pyproject.toml have changed

It asks the package index that pip is configured to use. A file that the index adds later is not installed until this is
run again. Fails where a package needs another one, on any system, that pyproject.toml does not list.
"""

import itertools
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires
from typing import cast
from urllib.parse import unquote

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, canonicalize_name
from packaging.utils import parse_sdist_filename as parse_sdist
from packaging.utils import parse_wheel_filename as parse_wheel
from packaging.version import Version

from tools.environment import LOCK, pins
from tools.failure import Failure, say

SYSTEMS = {"linux": ("posix", "Linux"), "darwin": ("posix", "Darwin"), "win32": ("nt", "Windows")}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
HEAD = "# Made by `python3 -m tools.lock` from pyproject.toml. The hashes are of all files of each version.\n"


def index_url() -> str:
    """The package index that pip uses: its environment variable, its configuration, or its default."""
    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    default = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    own = subprocess.run([sys.executable, "-c", default], capture_output=True, text=True, check=False).stdout.strip()
    return (os.environ.get("PIP_INDEX_URL") or configured or own).rstrip("/")


def hashes(index: str, pin: Requirement) -> list[str]:
    """The SHA-256 of every file of a pinned version."""
    request = urllib.request.Request(f"{index}/{canonicalize_name(pin.name)}/", headers={"Accept": ACCEPT})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text, in_json = answer.read().decode(), "json" in answer.headers["Content-Type"]
    files = _of_json(text) if in_json else _of_html(text)
    found = {sha256 for name, sha256 in files if _version(name) == _pinned(pin)}
    if not found:
        raise Failure(f"The package index has no file of {pin}")
    return sorted(found)


def _of_json(text: str) -> list[tuple[str, str]]:
    return [(file["filename"], file["hashes"]["sha256"]) for file in json.loads(text)["files"]]


def _of_html(text: str) -> list[tuple[str, str]]:
    """The links of an index that has no JSON: their addresses end with #sha256=..."""
    links = re.findall(r'<a\b[^>]*href="([^"#]*)#sha256=([0-9a-f]{64})"', text)
    return [(unquote(address).rsplit("/", 1)[-1], sha256) for address, sha256 in links]


def _pinned(pin: Requirement) -> str:
    return str(Version(str(pin.specifier).removeprefix("==")))


def _version(name: str) -> str | None:
    """The version of a file; None for kinds of files that pip does not install."""
    try:
        return str(parse_wheel(name)[1] if name.endswith(".whl") else parse_sdist(name)[1])
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def environments() -> Iterator[dict[str, str]]:
    """What markers see on each system and Python that the commands run on."""
    for (system, (os_name, platform)), python in itertools.product(SYSTEMS.items(), PYTHONS):
        found = cast("dict[str, str]", default_environment())
        found["sys_platform"], found["os_name"], found["platform_system"] = system, os_name, platform
        found["python_version"], found["python_full_version"] = python, f"{python}.0"
        yield found


def missing(listed: list[Requirement]) -> list[str]:
    """What installed packages need, on some system, and the list lacks: "PACKAGE (for NEEDER)"."""
    lacking = set()
    for environment in environments():
        there = {canonicalize_name(pin.name) for pin in listed if not pin.marker or pin.marker.evaluate(environment)}
        for name in there:
            try:
                needs = [Requirement(text) for text in requires(name) or []]
            except PackageNotFoundError:  # of another system
                continue
            lacking |= {
                f"{need.name} (for {name})"
                for need in needs
                if canonicalize_name(need.name) not in there
                and (not need.marker or need.marker.evaluate({**environment, "extra": ""}))
            }
    return sorted(lacking)


def main() -> int:
    """Write the file."""
    listed = sorted((Requirement(pin) for pin in pins()), key=lambda pin: canonicalize_name(pin.name))
    if lacking := missing(listed):
        say(f"pyproject.toml lacks constraints for: {', '.join(lacking)}")
        return 1
    index = index_url()
    blocks = [" \\\n    ".join([str(pin), *(f"--hash=sha256:{one}" for one in hashes(index, pin))]) for pin in listed]
    LOCK.write_text(HEAD + "\n".join(blocks) + "\n", encoding="utf-8")
    say(f"{LOCK.name}: {len(blocks)} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
