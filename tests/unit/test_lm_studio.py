"""LM Studio's API: figures beside OpenAI's answers, and lists of models."""

from types import SimpleNamespace
from typing import Any

import pytest

from app.compatible import lm_studio, lm_studio_models
from tests.support.worker_page import HELLO, HI, Page

ANSWER = {"choices": [{"finish_reason": "stop"}], "timings": {
    "cache_n": 3, "prompt_n": 5, "predicted_n": 4, "predicted_per_second": 40.0, "predicted_ms": 75.0, "ttft_ms": 50.0,
}}  # fmt: skip


@pytest.fixture
async def page() -> Page:
    page = Page()
    await page.call("load")
    return page


async def test_a_chat_has_figures_beside_openais_answer(page: Page) -> None:
    answer = await page.call("lmStudio.chat.completions", request={"messages": HI, "max_tokens": -1})
    plain = await page.call("chat.completions", request={"messages": HI})
    assert answer["choices"] == plain["choices"]
    assert answer["usage"] == plain["usage"]
    stats, timings = answer["stats"], answer["timings"]
    assert stats["stop_reason"] == "eosFound"
    assert stats["tokens_per_second"] == timings["predicted_per_second"] > 0
    assert stats["time_to_first_token"] == timings["ttft_ms"] / 1000 > 0
    assert stats["generation_time"] == pytest.approx((timings["ttft_ms"] + timings["predicted_ms"]) / 1000)
    assert answer["model_info"] == {"arch": "llama", "quant": "Q4_0", "format": "gguf", "context_length": 200}
    assert answer["runtime"] == {"name": "wisp-cpu", "supported_formats": ["gguf"]}


@pytest.mark.parametrize("include_usage", [False, True])
async def test_the_chunk_that_ends_a_choice_has_them(page: Page, include_usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if include_usage else {}
    chunks = await page.stream("lmStudio.chat.completions", messages=HI, n=2, **options)
    assert all(("stats" in c) == any(choice["finish_reason"] for choice in c["choices"]) for c in chunks)
    ends = [c for c in chunks if "stats" in c]
    assert [c["choices"][0]["index"] for c in ends] == [0, 1]
    assert all(c["stats"]["stop_reason"] == "eosFound" and c["model_info"]["arch"] == "llama" for c in ends)
    text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])
    assert text.count(HELLO) == 2


async def test_completions_have_them_too(page: Page) -> None:
    answer = await page.call("lmStudio.completions", request={"prompt": "Hi", "max_tokens": 2})
    assert (answer["object"], answer["choices"][0]["finish_reason"]) == ("text_completion", "length")
    assert answer["stats"]["stop_reason"] == "maxPredictedTokensReached"
    chunks = await page.stream("lmStudio.completions", prompt="Hi", max_tokens=2)
    assert chunks[-1]["stats"]["stop_reason"] == "maxPredictedTokensReached"


@pytest.mark.parametrize(
    ("choice", "context", "reason"),
    [
        ({"finish_reason": "stop"}, 12, "eosFound"),
        ({"finish_reason": "stop", "stop_reason": "a"}, 12, "stopStringFound"),
        ({"finish_reason": "tool_calls"}, 12, "toolCalls"),
        ({"finish_reason": "length"}, 13, "maxPredictedTokensReached"),
        ({"finish_reason": "length"}, 12, "contextLengthReached"),
    ],
)
async def test_why_an_answer_ended(page: Page, choice: dict[str, Any], context: int, reason: str) -> None:
    """Three tokens of the cache, five of the prompt and four of the answer are twelve."""
    model: Any = page.worker._models.loaded["mini"]
    model.engine = SimpleNamespace(context_length=context, backend="webgpu")
    made = lm_studio.with_stats(ANSWER | {"choices": [choice]}, model)
    assert made["stats"] == {
        "tokens_per_second": 40, "time_to_first_token": 0.05, "generation_time": 0.125, "stop_reason": reason
    }  # fmt: skip
    assert made["runtime"]["name"] == "wisp-webgpu"


async def test_the_sum_of_several_choices_does_not_tell_that_one_filled_the_context(page: Page) -> None:
    asked = {"messages": HI, "max_tokens": 4, "n": 50}
    answer = await page.call("lmStudio.chat.completions", request=asked)
    timings, context = answer["timings"], answer["model_info"]["context_length"]
    assert timings["cache_n"] + timings["prompt_n"] + timings["predicted_n"] > context
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"length"}
    assert answer["stats"]["stop_reason"] == "maxPredictedTokensReached"
    ends = [chunk for chunk in await page.stream("lmStudio.chat.completions", **asked) if "stats" in chunk]
    assert {chunk["stats"]["stop_reason"] for chunk in ends} == {"maxPredictedTokensReached"}


async def test_wrong_requests_have_openais_errors(page: Page) -> None:
    error = (await page.call("lmStudio.chat.completions", request={"messages": 5}))["error"]
    assert (error["code"], error["param"]) == ("invalid_type", "messages")
    assert await page.code("lmStudio.completions", request={"prompt": "a", "model": "none"}) == "model_not_found"


LOADED = {
    "id": "mini", "object": "model", "type": "llm", "publisher": "Wisp", "arch": "llama", "compatibility_type": "gguf",
    "quantization": "Q4_0", "state": "loaded", "max_context_length": 2048, "loaded_context_length": 200,
    "capabilities": ["tool_use"],
}  # fmt: skip


async def test_the_models_of_version_0(page: Page) -> None:
    assert await page.call("lmStudio.models") == {"object": "list", "data": [LOADED]}
    await page.call("unload")
    unread = {"id": "mini", "object": "model", "compatibility_type": "gguf", "state": "not-loaded"}
    assert (await page.call("lmStudio.models"))["data"] == [unread]


async def test_a_model_whose_memory_is_free_is_not_loaded(page: Page) -> None:
    model: Any = page.worker._models.loaded["mini"]
    model.engine = None
    older, newer = (
        lm_studio_models.described({"id": "mini"}, model),
        lm_studio_models.described_v1({"id": "mini"}, model),
    )
    assert (older, newer) == (
        lm_studio_models.described({"id": "mini"}, None),
        lm_studio_models.described_v1({"id": "mini"}, None),
    )
    assert (older["state"], newer["loaded_instances"]) == ("not-loaded", [])


async def test_the_models_of_version_1(page: Page) -> None:
    """Beside OpenAI's list, whose clients may ask at the same address."""
    answer = await page.call("lmStudio.models.listV1")
    models = answer.pop("models")
    assert answer == await page.call("models")
    (mini,) = models
    assert mini.pop("size_bytes") > 5_000_000
    assert 4.5 < mini["quantization"].pop("bits_per_weight") < 6
    assert mini == {
        "type": "llm", "publisher": "Wisp", "key": "mini", "display_name": "Mini", "architecture": "llama",
        "quantization": {"name": "Q4_0"}, "params_string": "8.92M", "max_context_length": 2048, "format": "gguf",
        "loaded_instances": [{"id": "mini", "config": {"context_length": 200}}], "description": None,
        "capabilities": {"vision": False, "trained_for_tool_use": True},
    }  # fmt: skip
    await page.call("unload")
    (unread,) = (await page.call("lmStudio.models.listV1"))["models"]
    assert (unread["quantization"], unread["params_string"], unread["loaded_instances"]) == (None, None, [])
    assert "type" not in unread
    assert "capabilities" not in unread


@pytest.mark.parametrize(
    ("preferred", "vision", "kinds"), [(True, False, ("embeddings", "embedding")), (False, True, ("vlm", "llm"))]
)
async def test_kinds_of_models(page: Page, preferred: bool, vision: bool, kinds: tuple[str, str]) -> None:
    model: Any = page.worker._models.loaded["mini"]
    page.engine.embeddings = SimpleNamespace(preferred=preferred)
    model.projector = SimpleNamespace(projector=SimpleNamespace(vision=vision, audio=False))
    older, newer = (
        lm_studio_models.described({"id": "mini"}, model),
        lm_studio_models.described_v1({"id": "mini"}, model),
    )
    assert (older["type"], newer["type"]) == kinds
    assert newer.get("capabilities", {}).get("vision", False) == vision
    assert ("architecture" in newer) != preferred
