"""Drafts by EAGLE-3 heads on WebGPU: the same text, in fewer steps. tests/unit/test_eagle.py has the rest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support import drafted_texts, eagle_models
from tests.support.engine_driver import run
from tools.selection import fewer
from tools.serve import Server

COUNT = 40

pytestmark = pytest.mark.lavapipe


@pytest.mark.parametrize(
    ("kind", "kv_type", "beside"),
    fewer(
        [("reduced", "f16", 2), ("normed", "f32", 0), ("shared", "f16", 0), ("recurrent", "f16", 2), ("odd", "f16", 0)],
        3,
    ),
)
def test_drafts_do_not_change_the_text(
    engine_pages: Callable[[str | None], Page], server: Server, tmp_path: Path, kind: str, kv_type: str, beside: int
) -> None:
    eagle_models.write(eagle_models.KINDS[kind], tmp_path / "model.gguf", tmp_path / "head.gguf")
    server.mounts[f"eagle-{kind}/"] = tmp_path  # records are cached by address
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": kv_type, "context_length": 128, "tune": False}
    options |= {"draft": {"files": 1, "tokens": 7}, "parallel": 4}
    arguments = {"prompt": [1, 5, 9, 13, 17, 21], "count": COUNT, "beside": beside}
    urls = [f"/eagle-{kind}/model.gguf", f"/eagle-{kind}/head.gguf"]
    out = run(engine_pages("lavapipe"), urls, "drafts.texts", arguments, **options, prove=True)
    drafted_texts.check(out, COUNT * (1 + beside))
