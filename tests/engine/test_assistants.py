"""Drafts by Gemma 4's assistants on WebGPU: the same text, in fewer steps.

tests/unit/test_assistants.py has the rest.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page

from tests.support import assistant_models
from tests.support.drafted_texts import compare
from tools.selection import fewer
from tools.serve import Server

pytestmark = pytest.mark.lavapipe


@pytest.mark.parametrize(
    ("base", "kv_type", "beside"), fewer([("gemma4/gemma4", "f16", 2), ("gemma4/gemma4-dense", "f32", 0)], 2)
)
def test_drafts_do_not_change_the_text(
    engine_pages: Callable[[str | None], Page], server: Server, tmp_path: Path, base: str, kv_type: str, beside: int
) -> None:
    assistant_models.write(base, tmp_path / "model.gguf", tmp_path / "draft.gguf")
    compare(engine_pages("lavapipe"), server, tmp_path, f"assistant-{base}/", kv_type, beside)
