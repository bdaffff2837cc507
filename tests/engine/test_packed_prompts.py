"""Prompts of several requests in one batch, on WebGPU: every answer is the one that it is alone."""

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
        ("gpt_oss/gpt-oss.MXFP4_MOE", "f16"),
        ("latent/deepseek32-top6.F16", "f16"),
    ],
)
def test_texts(engine_pages: Callable[[str | None], Page], model: str, kv_type: str) -> None:
    """Caches in bytes, of windows, with sinks and experts, and of latents with an index."""
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": kv_type, "context_length": 256, "parallel": 8}
    options |= {"batch": 256, "variant": {"software": False}}  # which would read 64 tokens at a time
    url = f"/repo/tests/golden/{model}.gguf"
    out = run(engine_pages("lavapipe"), url, "packed_prompts.texts", {"tokens": 8}, **options)
    assert out["beside"] == out["alone"]
    assert out["packed"]
    assert not out["packed_alone"]
