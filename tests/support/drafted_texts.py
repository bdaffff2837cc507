"""The texts of a model with a draft model on WebGPU beside those without drafts."""

from pathlib import Path
from typing import Any

from playwright.sync_api import Page

from tests.support.engine_driver import run
from tools.serve import Server

COUNT = 40  # tokens of each text


def compare(page: Page, server: Server, folder: Path, mount: str, kv_type: str, beside: int) -> None:
    """The texts of folder's model.gguf with and without draft.gguf: of one request, and `beside` more at once.

    `mount`: of the folder on the server; records are cached by address, so each model needs its own.
    """
    server.mounts[mount] = folder
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": kv_type, "context_length": 128, "tune": False}
    options |= {"draft": {"files": 1, "tokens": 7}, "parallel": 4}
    arguments = {"prompt": [1, 5, 9, 13, 17, 21], "count": COUNT, "beside": beside}
    urls = [f"/{mount}model.gguf", f"/{mount}draft.gguf"]
    check(run(page, urls, "drafts.texts", arguments, **options, prove=True), COUNT * (1 + beside))


def check(found: dict[str, Any], most_steps: int) -> None:
    """The same texts, some drafts accepted and others rejected, fewer steps, and no kernel wrong or unproven."""
    for name, one in found["texts"].items():
        assert one["drafted"] == one["plain"], name
        assert 0 < one["accepted"] < one["tokens"], name
        assert one["steps"] < most_steps, name
    assert not found["proof"]["wrong"], found["proof"]
    assert not found["proof"]["skipped"], found["proof"]
