"""Newer versions of cached models: asked for at most once a day, downloaded beside the old one until they are whole.

Where the host has a file's record hashes beside it (FILE.records.json: offset -> SHA-256; tools/records.py writes it),
only the header and the records that changed travel.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

import js
from pyodide.ffi import JsException

from py_engine import json_input
from py_engine.files.gguf_header import read_header
from py_engine.files.model_cache import NEXT, InUse
from py_engine.files.records import MAX_RECORD, plan_records
from py_engine.files.shards import UrlSource
from py_engine.files.source import OnProgress

DAY_MS = 86_400_000.0
MOST = 4 << 20  # bytes of a list of hashes


async def newer(url: str) -> bool:
    """Whether the host has another version of a cached model. Asks it at most once a day, never without a network."""
    try:
        model = await js.wispShards.getModel(url)
        asked = float(getattr(model, "asked", None) or 0) if model is not None else 0.0
        now = 1000 * time.time()
        if model is None or not js.navigator.onLine or 0 <= now - asked < DAY_MS:  # before: the clock was set back
            return False
        body = await js.wispShards.request(url, 0, 1, js.AbortController.new().signal)
        body.cancel()
        if body.status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
            return False
        await js.wispShards.putAsked(url, now)
        return bool(body.etag and model.etag and str(body.etag) != str(model.etag))
    except JsException:  # no network, or no storage
        return False


async def update(
    url: str, on_progress: OnProgress, in_use: InUse = set, max_record: int = MAX_RECORD
) -> dict[str, float]:
    """Replace a cached model by the host's version; returns the source's stats. WispError: the old one stays."""
    source = UrlSource(url + NEXT, on_progress, await _stated_hashes(url), in_use)
    old = [(int(a), int(n)) for a, n in (await js.wispShards.listRecords(url)).to_py()]
    source.probe_bytes = next((length for offset, length in old if offset == 0), source.probe_bytes)
    try:
        await source.open()
        header = await read_header(source.read, source.size, source.probe_bytes)
        plan = plan_records(header, source.size, max_record)
        await source.adopt(plan, url)
        await source.fill(plan)
        await js.wispShards.replaceModel(url, url + NEXT)
    finally:
        source.close()
    return source.stats


async def _stated_hashes(url: str) -> dict[int, str]:
    """The SHA-256 of each record that the host states beside the file; none if it does not."""
    try:
        text: Any = await js.wispShards.beginningOf(f"{url}.records.json", MOST)
        stated = json_input.parse(str(text)) if text is not None else {}
        return {int(offset): str(digest) for offset, digest in stated.items()}
    except (JsException, ValueError, AttributeError):
        return {}
