"""Prompts in slices on WebGPU. tests/unit/test_prompt_slices.py has the rest."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support.engine_driver import run


@pytest.mark.lavapipe
@pytest.mark.parametrize(
    ("model", "kv_type"),
    [
        ("llama/llama.Q4_0", "q8_0"),
        ("gemma/gemma3.F16", "f16"),
        ("qwen35/qwen35.F16", "f16"),
        ("latent/deepseek32-top6.F16", "f16"),
    ],
)
def test_texts(engine_pages: Callable[[str | None], Page], model: str, kv_type: str) -> None:
    """Caches of whole contexts, of windows, of states, and of an index, which grow meanwhile."""
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": kv_type, "context_length": 256, "parallel": 6}
    out = run(engine_pages("lavapipe"), f"/repo/tests/golden/{model}.gguf", "prompt_slices.texts", **options)
    assert out["beside"] == out["alone"]
    assert out["embeddings"][0] == out["embeddings"][1]
    assert min(out["slices"]) > 0
