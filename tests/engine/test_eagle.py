"""Drafts by EAGLE-3 heads on WebGPU: the same text, in fewer steps. tests/unit/test_eagle.py has the rest."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support import eagle_models
from tests.support.drafted_texts import compare
from tools.selection import fewer
from tools.serve import Server

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
    eagle_models.write(eagle_models.KINDS[kind], tmp_path / "model.gguf", tmp_path / "draft.gguf")
    compare(engine_pages("lavapipe"), server, tmp_path, f"eagle-{kind}/", kv_type, beside)
