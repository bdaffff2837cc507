# ruff: noqa: E501
"""Bundles the official openai client once, and opens pages that use it."""

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import BrowserContext, Page

from tests.support.waiting import HANG_S
from tools.failure import run as tool_run
from tools.npm import node
from tools.paths import NODE_MODULES, ROOT
from tools.serve import Server

BUNDLES = NODE_MODULES / ".cache" / "wisp"


@functools.cache
def bundle(name: str, file: Path) -> str:
    """Bundle a module with what it imports; return its path on the tests' server."""
    request = json.dumps({"root": str(ROOT), "entries": [{"name": name, "file": str(file), "format": "esm"}]})
    BUNDLES.mkdir(parents=True, exist_ok=True)
    bundled = tool_run([node(), ROOT / "tools" / "bundle.mjs"], f"Cannot bundle {name}", cwd=ROOT, stdin=request)
    made = BUNDLES / f"{name}.js"
    with tempfile.TemporaryDirectory(dir=BUNDLES) as folder:
        whole = Path(folder) / made.name
        whole.write_text(json.loads(bundled)["outputs"][name], encoding="utf-8")
        whole.replace(made)  # at once: a page of another process may read it
    return f"/repo/{made.relative_to(NODE_MODULES.parent).as_posix()}"


def client_path() -> str:
    """The official client as one module."""
    return bundle("openai", NODE_MODULES / "openai" / "index.mjs")


SET_UP = """async (client) => {
  await navigator.serviceWorker.register("/sw.js");
  await navigator.serviceWorker.ready;
  while (!navigator.serviceWorker.controller) await new Promise((resolve) => setTimeout(resolve, 20));
  const { default: OpenAI } = await import(client);
  const openai = new OpenAI({ baseURL: `${location.origin}/v1`, apiKey: "none", dangerouslyAllowBrowser: true, maxRetries: 0 });
  const ask = (content, more = {}) => ({ model: "wisp-mini-q4_0", temperature: 0, messages: [{ role: "user", content }], ...more });
  const failure = async (promise) => {
    try { await promise; return null; }
    catch (error) {
      const { status, code, param, type, message } = error;
      const name = Object.keys(OpenAI).find((key) => OpenAI[key] === error.constructor);
      return { name, status: status ?? null, code: code ?? null, param: param ?? null, type: type ?? null, message };
    }
  };
  const read = async (stream) => { const all = []; for await (const chunk of stream) all.push(chunk); return all; };
  Object.assign(globalThis, { openai, ask, failure, read });
}"""


def run(page: Page, code: str, **given: Any) -> Any:
    """The value of an async function body; `given` are its variables."""
    return page.evaluate(f"async ({{{', '.join(given)}}}) => {{ {code} }}", given)


def settled(page: Page, promise: str) -> Any:
    """Return the value of a promise that a global of the page holds; fail if it hangs."""
    return run(
        page,
        f"""const hang = (_, reject) => setTimeout(() => reject(new Error("it hangs")), limit);
        return Promise.race([{promise}, new Promise(hang)]);""",
        limit=1000 * HANG_S,
    )


def open_client_page(context: BrowserContext, server: Server) -> Page:
    """A page with the client but without an engine."""
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    page.evaluate(SET_UP, client_path())
    return page
