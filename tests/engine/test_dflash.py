"""Drafts by DFlash models on WebGPU: the same text, in fewer steps. tests/unit/test_dflash.py has the rest."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support import dflash_models
from tests.support.drafted_texts import compare
from tools.selection import fewer
from tools.serve import Server

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
    compare(engine_pages("lavapipe"), server, tmp_path, f"dflash-{kind}/", kv_type, beside)
