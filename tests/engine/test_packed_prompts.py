"""Prompts of several requests in one batch, on WebGPU: every answer is the one that it is alone."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support.engine_driver import run

OPTIONS: dict[str, Any] = {
    "backend": "webgpu", "parallel": 8, "batch": 256, "context_length": 256,
    "variant": {"software": False},  # which would read 64 tokens at a time
}  # fmt: skip


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
    url = f"/repo/tests/golden/{model}.gguf"
    arguments = {"tokens": 8}
    out = run(engine_pages("lavapipe"), url, "packed_prompts.texts", arguments, kv_type=kv_type, **OPTIONS)
    assert out["beside"] == out["alone"]
    assert out["packed"]
    assert not out["packed_alone"]


@pytest.mark.lavapipe
@pytest.mark.parametrize(
    ("model", "kv_type", "cached"),
    [
        ("llama/llama.Q4_0", "q8_0", False),
        ("gemma/gemma3.F16", "f16", True),
        ("gpt_oss/gpt-oss.MXFP4_MOE", "f16", False),
        ("dense/qwen2vl.F16", "f16", True),
    ],
)
def test_texts_with_a_cached_beginning(
    engine_pages: Callable[[str | None], Page], model: str, kv_type: str, cached: bool
) -> None:
    """Most prompts have pages in common, also one that ends within a page; others have a text of their own, or none."""
    url = f"/repo/tests/golden/{model}.gguf"
    arguments = {"tokens": 8, "cached": cached}
    task = "packed_prompts.texts_with_beginnings"
    out = run(engine_pages("lavapipe"), url, task, arguments, kv_type=kv_type, **OPTIONS)
    assert out["beside"] == out["alone"]
    assert max(prefix for _, prefix in out["packed"]) == 64
    assert not out["packed_alone"]
