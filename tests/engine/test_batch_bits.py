"""A batch computes for each of its sequences, bit by bit, what a step of that sequence alone computes.

So seeded requests share steps with others, and a text depends neither on them nor on drafts.
"""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.support.engine_driver import run

# In subgroups of 8: narrower ones do not round a small batch's x in the dispatch that adds to it.
WIDE = "lavapipe-wide"
LOGITS = "batch_bits.logits", None, "batch_bits.small_batches_alone"  # task, arguments, context
BYTES, HARDWARE = {"dot8": True}, {"dot8": True, "software": False}
CASES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("lavapipe", "llama/llama.Q5_K", "q8_0", BYTES | {"f16": False, "subgroup": 0}),
    (WIDE, "gemma/gemma3.Q8_0", "f16", BYTES),  # windows, norms of queries and keys and after a block
    (WIDE, "qwen/qwen3.Q4_K_M", "f16", HARDWARE),  # norms and RoPE in attention; two matrices at once
    (WIDE, "llama/mixtral.Q4_K_M", "f16", BYTES),  # experts
    ("lavapipe", "gpt_oss/gpt-oss.F16", "f16", {}),  # attention sinks, biases of experts
    ("lavapipe", "lfm2/lfm2.F16", "f16", {}),  # short convolutions
    ("lavapipe", "qwen35/qwen35.F16", "f16", {}),  # states
    ("lavapipe", "latent/deepseek32-top6.F16", "f16", {}),  # latents, an index
    ("lavapipe", "latent/glm5-next-top8.F16", "f16", {}),  # an index that joins keys
    ("lavapipe", "qwen35/qwen4exp-top8.F16", "f32", {"f16": False}),  # the same before their norm
    ("lavapipe", "latent/deepseek4-top3.F16", "f16", {}),  # compressed keys, their index, experts by token
    (WIDE, "gemma/gemma3n.F16", "f16", {}),  # several residual streams, sparse gates, shared caches
]


@pytest.mark.lavapipe
@pytest.mark.parametrize(("adapter", "model", "kv_type", "variant"), CASES)
def test_logits(
    engine_pages: Callable[[str | None], Page], adapter: str, model: str, kv_type: str, variant: dict[str, Any]
) -> None:
    """Members of a batch change at every step; a draft is a batch, too."""
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": kv_type, "context_length": 256, "parallel": 17}
    url = f"/repo/tests/golden/{model}.gguf"
    out = run(engine_pages(adapter), url, *LOGITS, **options, variant=variant, tune=False)
    assert out == {"rows": 55, "different": 0, "worst": 0}


@pytest.mark.lavapipe
@pytest.mark.parametrize("adapter", [WIDE])
def test_logits_beside_adapters(engine_pages: Callable[[str | None], Page], adapter: str) -> None:
    """A sequence without adapters runs other lists alone than beside one that has some.

    kernels/test_adapters.py has the kernels' variants.
    """
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": "f16", "context_length": 256, "parallel": 17}
    urls = ["/repo/tests/golden/llama/llama.Q4_K_M.gguf"]
    urls += [f"/repo/tests/golden/lora/lora-llama.Q4_K_M.{part}.gguf" for part in "abc"]
    out = run(engine_pages(adapter), urls, *LOGITS, **options, variant=BYTES, tune=False)
    assert out == {"rows": 55, "different": 0, "worst": 0}


@pytest.mark.lavapipe
def test_seeded_texts(engine_pages: Callable[[str | None], Page]) -> None:
    """Alone, and among requests that come and go in mid-answer."""
    options: dict[str, Any] = {"backend": "webgpu", "kv_type": "f16", "context_length": 256, "parallel": 16}
    out = run(engine_pages("lavapipe"), "/repo/tests/golden/llama/llama.Q4_0.gguf", "batch_bits.texts", **options)
    assert out["beside"] == out["alone"]
    assert out["shared"] > 20
