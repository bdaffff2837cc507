"""A real webpack app installs the npm package, is built, and streams an answer (npm/README.md).

Runs with WISP_INSTALLS=1 only: it installs webpack.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support import npm_app
from tools import npm_package
from tools.failure import run

pytestmark = pytest.mark.skipif("WISP_INSTALLS" not in os.environ, reason="WISP_INSTALLS=1 runs it")
PACKAGES = ("webpack@5.112.2", "webpack-cli@7.3.1", "copy-webpack-plugin@14.0.0")


def test_a_webpack_app_streams_an_answer(tmp_path: Path, dist: Path, chromium: Callable[[str | None], Browser]) -> None:
    files = {
        "webpack.config.js": npm_app.WEBPACK,
        "src/index.js": npm_app.app(),
        "package.json": '{"private": true, "type": "module"}',
    }
    (tmp_path / "src").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    npm_app.install(tmp_path, *PACKAGES, npm_package.build(dist, tmp_path))
    webpack = tmp_path / "node_modules" / ".bin" / "webpack"
    run([webpack, "--mode", "production"], "webpack fails", cwd=tmp_path)
    site = tmp_path / "dist"
    (site / "index.html").write_text('<!doctype html><script type="module" src="main.js"></script>')
    assert "Paris" in npm_app.answer(site, chromium)
