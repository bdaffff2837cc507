"""Drafts by Gemma 4's assistants on WebGPU: the same text, in fewer steps.

tests/unit/test_assistants.py has the rest.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support import assistant_models, drafted_texts
from tests.support.engine_driver import run
from tools.selection import fewer
from tools.serve import Server

COUNT = 40

pytestmark = pytest.mark.lavapipe


@pytest.mark.parametrize(
    ("base", "kv_type", "beside"), fewer([("gemma4/gemma4", "f16", 2), ("gemma4/gemma4-dense", "f32", 0)], 2)
)
def test_drafts_do_not_change_the_text(
    engine_pages: Callable[[str | None], Page], server: Server, tmp_path: Path, base: str, kv_type: str, beside: int
) -> None:
    assistant_models.write(base, tmp_path / "model.gguf", tmp_path / "assistant.gguf")
    server.mounts[mount := f"assistant-{base}/"] = tmp_path  # records are cached by address
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": kv_type, "context_length": 128, "tune": False}
    options |= {"draft": {"files": 1, "tokens": 7}, "parallel": 4}
    arguments = {"prompt": [1, 5, 9, 13, 17, 21], "count": COUNT, "beside": beside}
    urls = [f"/{mount}model.gguf", f"/{mount}assistant.gguf"]
    out = run(engine_pages("lavapipe"), urls, "drafts.texts", arguments, **options, prove=True)
    drafted_texts.check(out, COUNT * (1 + beside))
