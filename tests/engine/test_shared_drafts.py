"""Drafts of several sequences in the same steps on WebGPU: the texts of each alone, in fewer steps.

tests/unit/test_shared_drafts.py has the rest.
"""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support.engine_driver import run

GOLDEN = "/repo/tests/golden"


@pytest.mark.lavapipe
@pytest.mark.parametrize(
    ("model", "counts"),
    [
        ("llama/llama.Q4_0", [2, 4]),
        ("gpt_oss/gpt-oss.F16", [3]),  # windows, experts
    ],
)
def test_texts(engine_pages: Callable[[str | None], Page], model: str, counts: list[int]) -> None:
    """Greedy, seeded and with penalties, while another request is aborted; most drafts are right."""
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": "f16", "context_length": 256, "parallel": 6}
    arguments = {"counts": counts, "tokens": 80}
    out = run(
        engine_pages("lavapipe"), f"{GOLDEN}/{model}.gguf", "shared_drafts.texts", arguments, **options,
        tune=False, prove=True,
    )  # fmt: skip
    for count, beside, (steps, tokens, shared) in zip(counts, out["beside"], out["figures"], strict=True):
        assert beside == out["alone"][:count]
        assert shared > 3, out["figures"]
        assert tokens > 1.3 * steps, "accepted drafts"
    assert not out["proof"]["wrong"], out["proof"]
    assert not out["proof"]["skipped"], out["proof"]
