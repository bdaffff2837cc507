"""A real Vite app installs the npm package, is type-checked and built, and streams an answer (npm/README.md).

Runs with WISP_INSTALLS=1 only: it installs Vite and TypeScript.
"""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support import npm_app
from tools import npm_package

pytestmark = pytest.mark.skipif("WISP_INSTALLS" not in os.environ, reason="WISP_INSTALLS=1 runs it")
PACKAGES = ("vite@8.3.8", "typescript@5.9.3")
TSCONFIG = {"compilerOptions": {"allowJs": True, "checkJs": True, "noEmit": True, "strict": True, "target": "es2022",
                                "module": "esnext", "moduleResolution": "bundler", "skipLibCheck": True,
                                "lib": ["es2024", "dom", "dom.iterable", "dom.asynciterable"], "types": []},
            "include": ["main.js"]}  # fmt: skip


def test_a_vite_app_streams_an_answer(tmp_path: Path, dist: Path, chromium: Callable[[str | None], Browser]) -> None:
    def run(*command: str | Path) -> None:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    app = npm_app.app()
    assert len(app.splitlines()) <= 10
    wrong = app.replace("{ model", "{ contextLength: '9', model")
    files = {
        "vite.config.js": npm_app.VITE,
        "main.js": app,
        "wrong.js": wrong,
        "tsconfig.json": json.dumps(TSCONFIG),
        "package.json": '{"private": true, "type": "module"}',
        "index.html": '<!doctype html><script type="module" src="/main.js"></script>',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    npm_app.install(tmp_path, *PACKAGES, npm_package.build(dist, tmp_path))
    run(tmp_path / "node_modules" / ".bin" / "tsc")
    (tmp_path / "tsconfig.json").write_text(json.dumps({**TSCONFIG, "include": ["wrong.js"]}))
    with pytest.raises(AssertionError, match="'string' is not assignable to type 'number'"):
        run(tmp_path / "node_modules" / ".bin" / "tsc")
    run(tmp_path / "node_modules" / ".bin" / "vite", "build")
    assert "Paris" in npm_app.answer(tmp_path / "dist", chromium)
