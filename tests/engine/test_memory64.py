"""The CPU engine beyond 4 GiB, in Chromium. tests/unit/test_cpu_memory64.py has more models."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.support.browser import call_python


@pytest.mark.parametrize(("model", "kv_type"), [("llama/llama.Q4_K_M", "f16"), ("llama/mixtral.Q4_K_M", "q8_0")])
def test_64_bit_modules_compute_the_same_bits(
    engine_pages: Callable[[str | None], Page], model: str, kv_type: str
) -> None:
    """On one and two threads, with all of the plan beyond 4 GiB."""
    page, prompt = engine_pages("swiftshader"), [1, 5, 9, 13, 17, 21, 40, 41]
    url = f"/repo/tests/golden/{model}.gguf"
    small, *large = call_python(page, "memory64.results", url=url, kv_type=kv_type, prompt=prompt)
    assert [small["threads"], *(one["threads"] for one in large)] == [1, 1, 2]
    assert (small["high"], small["limit"]) == (False, 65535 << 16)
    for one in large:
        assert (one["high"], one["limit"]) == (True, 1 << 34)
        assert (one["logits"], one["answer"]) == (small["logits"], small["answer"])
    assert len(small["answer"]) == 12


def test_inspection_knows_the_browser_s_limit(engine_pages: Callable[[str | None], Page]) -> None:
    page, url = engine_pages("swiftshader"), "/repo/tests/golden/llama/llama.Q4_0.gguf"
    fits, none, known, too_large, advice, _ = call_python(page, "memory64.verdicts", url=url, limit=1 << 10)
    assert (fits, none, known) == ("fits", "", str(65535 << 16))
    assert too_large == "too_large"
    assert "64-bit WebAssembly" in advice
