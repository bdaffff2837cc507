"""A cached model is read by workers of the page's, hashed there, and healed; whichever page lends them."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page

from tests.e2e.test_shards import DAMAGE
from tools.serve import Server

LOAD = """async (shared) => {
  const { Wisp } = await import("/wisp.js");
  globalThis.engine ??= await Wisp.create({ shared });
  await engine.unload();
  await engine.load({ backend: "cpu", contextLength: 64 });
  return (await engine.stats()).cache;
}"""
RECORDS = """async () => {
  const db = await new Promise((resolve) => {
    const asked = indexedDB.open("wisp-models");
    asked.onsuccess = () => resolve(asked.result);
  });
  const asked = db.transaction("records").objectStore("records").getAllKeys();
  const keys = await new Promise((resolve) => { asked.onsuccess = () => resolve(asked.result); });
  db.close();
  return keys;
}"""


def open_page(context: BrowserContext, server: Server) -> Page:
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{server.url}tests/blank.html")
    return page


def check(cache: dict[str, Any], healed: int = 0) -> None:
    assert cache["from_cache"] == cache["records"] - healed
    assert cache["healed"] == healed
    assert min(cache["read_ms"], cache["hash_ms"]) > 0


@pytest.mark.parametrize("shared", [True, False])
def test_workers_read_what_is_cached(chromium: Callable[..., Browser], server: Server, shared: bool) -> None:
    context = chromium(None).new_context()
    page = open_page(context, server)
    page.evaluate(LOAD, shared)
    check(page.evaluate(LOAD, shared))
    if shared:
        assert len(page.workers) >= 1, "the shared worker cannot start any, the page does"
    largest = max(page.evaluate(RECORDS), key=lambda key: key[2])
    assert largest[2] > 4 << 20
    page.evaluate(DAMAGE, [*largest, "flipped"])
    check(page.evaluate(LOAD, shared), healed=1)
    if shared:
        other = open_page(context, server)
        other.evaluate(LOAD, shared)
        page.close()
        check(other.evaluate(LOAD, shared))
    context.close()
