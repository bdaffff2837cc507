"""Drafts by a model on WebGPU: the same text, fewer steps.

tests/unit/test_draft_model.py has the rest, and test_wisp_mini_draft.py how many tokens of a trained model are right.
"""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support.engine_driver import run

pytestmark = pytest.mark.lavapipe
GOLDEN = "/repo/tests/golden"
COUNT = 60


@pytest.mark.parametrize(("draft", "agrees"), [("llama/llama.Q8_0", True), ("qwen/qwen3.F16", False)])
def test_drafts_do_not_change_the_text(engine_pages: Callable[[str | None], Page], draft: str, agrees: bool) -> None:
    """The model itself drafts what it samples, because the noise is the same; a model with other weights does not."""
    urls = [f"{GOLDEN}/{name}.gguf" for name in ("llama/llama.Q8_0", draft)]
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": "f16", "context_length": 128, "tune": False}
    options["draft"] = {"files": 1, "tokens": 7}
    arguments = {"prompt": [1, 5, 9, 13, 17, 21], "count": COUNT}
    out = run(engine_pages("lavapipe"), urls, "drafts.texts", arguments, **options, prove=True)
    for name, one in out["texts"].items():
        assert one["drafted"] == one["plain"], name
        assert (one["accepted"] > 0.9 * one["tokens"]) == agrees, name
        assert (one["steps"] <= COUNT / 3) == agrees, "up to 8 tokens a step; some are submitted ahead of the end"
    assert not out["proof"]["wrong"], out["proof"]
    assert not out["proof"]["skipped"], out["proof"]
