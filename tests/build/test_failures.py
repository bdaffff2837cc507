"""`build.py` when something is missing: one line with what to do, status 1, no traceback."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.checkouts import copy_sources
from tools.paths import ROOT

NEEDED = ("git", "sh", "env", "uname")


def build(checkout: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **env}
    environment.pop("WISP_BROWSER", None)
    return subprocess.run(
        [sys.executable, "build.py", *arguments],
        cwd=checkout, env=environment, capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The one line, after checking that it is the only one about the failure."""
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("build.py: ")][-1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the build command is made of; with the environment, without npm packages."""
    made = tmp_path / "checkout"
    made.mkdir()
    copy_sources(made)
    return made


@pytest.fixture
def bare_path(tmp_path: Path) -> Path:
    """A folder for PATH with next to nothing in it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in NEEDED:
        if found := shutil.which(name):
            (folder / name).symlink_to(found)
    return folder


def test_no_node(checkout: Path, bare_path: Path) -> None:
    assert "install Node" in said(build(checkout, "build", PATH=str(bare_path)))


def test_old_node(checkout: Path, bare_path: Path) -> None:
    (bare_path / "node").write_text("#!/bin/sh\necho v12.1.0\n")
    (bare_path / "node").chmod(0o755)
    assert "v12.1.0 is too old" in said(build(checkout, "build", PATH=str(bare_path)))


def test_no_npm(checkout: Path, bare_path: Path) -> None:
    node = shutil.which("node")
    assert node
    (bare_path / "node").symlink_to(os.path.realpath(node))
    assert "npm is not installed" in said(build(checkout, "build", PATH=str(bare_path)))


NO_NETWORK = dict.fromkeys(
    ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"
)


def test_no_network_for_npm(checkout: Path, tmp_path: Path) -> None:
    env = {**NO_NETWORK, "npm_config_registry": "http://127.0.0.1:9/", "npm_config_cache": str(tmp_path / "npm"),
           "npm_config_fetch_retries": "0"}  # fmt: skip
    assert "check the network" in said(build(checkout, "build", **env))


def test_no_network_for_python_packages(checkout: Path) -> None:
    (checkout / ".venv").unlink()
    env = {**NO_NETWORK, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "0",
           "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}  # fmt: skip
    assert "Cannot install the Python packages; check the network" in said(build(checkout, "build", **env))


def test_no_network_for_pyodides_wheels(checkout: Path, tmp_path: Path) -> None:
    (checkout / "node_modules").symlink_to(ROOT / "node_modules")
    env = {**NO_NETWORK, "PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_NO_CACHE_DIR": "1",
           "PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "XDG_CACHE_HOME": str(tmp_path / "empty")}  # fmt: skip
    assert "neither from its CDN nor" in said(build(checkout, "build", **env))


def test_broken_javascript(checkout: Path) -> None:
    (checkout / "node_modules").symlink_to(ROOT / "node_modules")
    (checkout / "app" / "wisp.js").write_text("import {")
    assert "Cannot bundle" in said(build(checkout, "build"))


def test_port_taken(dist: Path) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        held.listen()
        line = said(build(ROOT, "serve", "--no-open", "--port", str(held.getsockname()[1])))
    assert "is taken" in line
    assert "--port" in line


def test_no_browser(checkout: Path, bare_path: Path, tmp_path: Path) -> None:
    (checkout / "node_modules").symlink_to(ROOT / "node_modules")
    node = shutil.which("node")
    assert node
    (bare_path / "node").symlink_to(os.path.realpath(node))
    env = {**NO_NETWORK, "PATH": str(bare_path), "PLAYWRIGHT_DOWNLOAD_HOST": "http://127.0.0.1:9"}
    line = said(build(checkout, "chat", "hello", XDG_CACHE_HOME=str(tmp_path / "cache"), **env))
    assert "install Chromium" in line


def test_unknown_command() -> None:
    done = build(ROOT, "frobnicate")
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
