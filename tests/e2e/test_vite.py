"""A real Vite app installs the npm package, is type-checked and built, and streams an answer (npm/README.md).

Runs with WISP_INSTALLS=1 only: it installs Vite and TypeScript.
"""

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser

from tests.support.bare_pyodide import MODEL, Quiet
from tools import npm_package
from tools.paths import ROOT

pytestmark = pytest.mark.skipif("WISP_INSTALLS" not in os.environ, reason="WISP_INSTALLS=1 runs it")
PACKAGES = ("vite@8.3.8", "typescript@5.9.3")
README = (ROOT / "npm" / "README.md").read_text(encoding="utf-8")
CONFIG, APP = re.findall(r"```js\n(.*?)```", README, re.DOTALL)
TSCONFIG = {"compilerOptions": {"allowJs": True, "checkJs": True, "noEmit": True, "strict": True, "target": "es2022",
                                "module": "esnext", "moduleResolution": "bundler", "skipLibCheck": True,
                                "lib": ["es2024", "dom", "dom.iterable", "dom.asynciterable"], "types": []},
            "include": ["main.js"]}  # fmt: skip


def test_a_vite_app_streams_an_answer(tmp_path: Path, dist: Path, chromium: Callable[[str | None], Browser]) -> None:
    def run(*command: str | Path) -> None:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    app = APP.replace("https://example.org/model.gguf", f"/{MODEL.name}").replace(
        "Hello", "What is the capital of France?"
    )
    assert len(app.splitlines()) <= 10
    wrong = app.replace("{ model", "{ contextLength: '9', model")
    files = {
        "vite.config.js": CONFIG,
        "main.js": app,
        "wrong.js": wrong,
        "tsconfig.json": json.dumps(TSCONFIG),
        "package.json": '{"private": true, "type": "module"}',
        "index.html": '<!doctype html><script type="module" src="/main.js"></script>',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    npm = shutil.which("npm") or "npm"
    run(npm, "install", "--no-audit", "--no-fund", *PACKAGES, npm_package.build(dist, tmp_path))
    run(tmp_path / "node_modules" / ".bin" / "tsc")
    (tmp_path / "tsconfig.json").write_text(json.dumps({**TSCONFIG, "include": ["wrong.js"]}))
    with pytest.raises(AssertionError, match="'string' is not assignable to type 'number'"):
        run(tmp_path / "node_modules" / ".bin" / "tsc")
    run(tmp_path / "node_modules" / ".bin" / "vite", "build")
    shutil.copy(MODEL, tmp_path / "dist")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path / "dist"))
    Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    page = chromium(None).new_context().new_page()
    page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
    text = ""
    for _ in range(120):
        text = page.locator("body").inner_text()
        if "." in text:
            break
        time.sleep(0.5)
    page.context.close()
    server.shutdown()
    server.server_close()
    assert "Paris" in text
