"""Drafts by a model's own MTP layer on WebGPU: the same text, in fewer steps. tests/unit/test_mtp.py has the rest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support import drafted_texts, mtp_models
from tests.support.engine_driver import run
from tools.selection import fewer
from tools.serve import Server

COUNT = 40

pytestmark = pytest.mark.lavapipe


@pytest.mark.parametrize(
    ("base", "beside"), fewer([("qwen35/qwen35", 2), ("latent/deepseek2", 0), ("qwen35/qwen35", 0)], 2)
)
def test_drafts_do_not_change_the_text(
    engine_pages: Callable[[str | None], Page], server: Server, tmp_path: Path, base: str, beside: int
) -> None:
    """Some drafts are accepted, others are rejected; recurrent layers go back to the states before them."""
    mtp_models.write(base, tmp_path / "model.gguf")
    server.mounts[mount := f"mtp-{base}/"] = tmp_path  # records are cached by address
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": "f16", "context_length": 128, "tune": False}
    arguments = {"prompt": [1, 5, 9, 13, 17, 21], "count": COUNT, "beside": beside}
    page = engine_pages("lavapipe")
    out = run(page, f"/{mount}model.gguf", "drafts.texts", arguments, **options, mtp=True, prove=True)
    drafted_texts.check(out, COUNT * (1 + beside))
