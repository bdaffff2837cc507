"""Drafts by a model on WebGPU: the same text, fewer steps.

tests/unit/test_draft_model.py has the rest, and test_wisp_mini_draft.py how many tokens of a trained model are right.
"""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support.engine_driver import run
from tools.selection import fewer

pytestmark = pytest.mark.lavapipe
GOLDEN = "/repo/tests/golden"
COUNT = 60


@pytest.mark.parametrize(
    ("draft", "agrees", "beside"),
    fewer([("llama/llama.Q8_0", True, 1), ("qwen/qwen3.F16", False, 0), ("llama/llama.Q8_0", True, 0)], 2),
)
def test_drafts_do_not_change_the_text(
    engine_pages: Callable[[str | None], Page], draft: str, agrees: bool, beside: int
) -> None:
    """The model itself drafts what it samples, because the noise is the same; a model with other weights does not.

    `beside`: requests that draft in the same steps.
    """
    urls = [f"{GOLDEN}/{name}.gguf" for name in ("llama/llama.Q8_0", draft)]
    options: dict[str, Any] = {
        "backend": "webgpu",
        "kv_type": "f16",
        "context_length": 128,
        "tune": False,
        "parallel": 2,
    }
    options["draft"] = {"files": 1, "tokens": 7}
    arguments = {"prompt": [1, 5, 9, 13, 17, 21], "count": COUNT, "beside": beside}
    out = run(engine_pages("lavapipe"), urls, "drafts.texts", arguments, **options, prove=True)
    for name, one in out["texts"].items():
        assert one["drafted"] == one["plain"], name
        assert (one["accepted"] > 0.9 * one["tokens"]) == agrees, name
        least = 1.6 if beside else 3  # tokens of a sequence's step: up to 4, or 8; some are submitted ahead of the end
        assert (one["steps"] <= (1 + beside) * COUNT / least) == agrees
    assert not out["proof"]["wrong"], out["proof"]
    assert not out["proof"]["skipped"], out["proof"]
