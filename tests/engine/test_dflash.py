"""Drafts by DFlash models on WebGPU: the same text, in fewer steps. tests/unit/test_dflash.py has the rest."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support import dflash_models, drafted_texts
from tests.support.engine_driver import run
from tools.selection import fewer
from tools.serve import Server

COUNT = 40

pytestmark = pytest.mark.lavapipe


@pytest.mark.parametrize(
    ("kind", "kv_type", "beside"),
    fewer(
        [
            ("plain", "f16", 2),
            ("owned", "f32", 0),
            ("windowed", "f16", 0),
            ("gemma", "f16", 2),
            ("recurrent", "f16", 2),
            ("scaled", "f16", 0),
        ],
        3,
    ),
)
def test_drafts_do_not_change_the_text(
    engine_pages: Callable[[str | None], Page], server: Server, tmp_path: Path, kind: str, kv_type: str, beside: int
) -> None:
    dflash_models.write(dflash_models.KINDS[kind], tmp_path / "model.gguf", tmp_path / "draft.gguf")
    server.mounts[f"dflash-{kind}/"] = tmp_path  # records are cached by address
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": kv_type, "context_length": 128, "tune": False}
    options |= {"draft": {"files": 1, "tokens": 7}, "parallel": 4}
    arguments = {"prompt": [1, 5, 9, 13, 17, 21], "count": COUNT, "beside": beside}
    urls = [f"/dflash-{kind}/model.gguf", f"/dflash-{kind}/draft.gguf"]
    out = run(engine_pages("lavapipe"), urls, "drafts.texts", arguments, **options, prove=True)
    drafted_texts.check(out, COUNT * (1 + beside))
