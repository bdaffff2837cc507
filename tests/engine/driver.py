"""Drives py_engine.engine.Engine in an engine page."""

import base64
from typing import Any

import numpy as np
from playwright.sync_api import Page

from tests.browser import run_python

LOAD = """
import asyncio, base64, json
from py_engine.engine import Engine
from py_engine.errors import WispError
from py_engine.options import LoadOptions
from py_engine.files.gguf_header import read_header
from py_engine.plan.sampling import Sampling
from py_engine.files.shards import open_source
import js

def raw(logits):
    data = logits.tobytes() if hasattr(logits, "tobytes") else js.Uint8Array.new(logits.buffer).to_bytes()
    return base64.b64encode(data).decode()

async def collect(engine, ids, sampling, count, stop=frozenset()):
    out = []
    async for batch in engine.generate(ids, sampling, count, stop):
        out += batch.ids
    return out

urls = url if isinstance(url, list) else [url]
sources = [await open_source(js.URL.new(one, js.location.href).href, lambda *_: None) for one in urls]
headers = [await read_header(source.read, source.size) for source in sources]
several = isinstance(url, list)
options = LoadOptions(**options)
engine = await Engine.load(sources if several else sources[0], headers if several else headers[0], options)
try:
    result = await main()
finally:
    await engine.unload()
    for source in sources:
        source.close()
result
"""


def run(
    page: Page, url: str | list[str], code: str, args: dict[str, Any] | None = None, before: str = "", **options: Any
) -> Any:
    """Load `url` with `options` after the Python of `before`, run `code` (the body of `async def main()`, which returns
    JSON), unload.
    """
    body = "async def main():\n" + "\n".join(f"    {line}" for line in code.strip().splitlines()) + "\n"
    return run_python(page, before + body + LOAD, {"url": url, "options": options, **(args or {})})


def floats(text: str, shape: Any) -> np.ndarray:
    """What raw() sent."""
    return np.frombuffer(base64.b64decode(text), np.float32).reshape(shape)
