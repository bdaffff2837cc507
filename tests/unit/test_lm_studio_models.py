"""LM Studio's loads and unloads: of models that a request may name, without a change of those that are loaded."""

import asyncio
from typing import Any

import pytest

from app.compatible.lm_studio_models import load_request, reworded
from py_engine.errors import WispError
from tests.support.worker_page import HI, Engine, Page

LOAD, UNLOAD = "lmStudio.models.load", "lmStudio.models.unload"


class ContextEngine(Engine):
    """An engine with the context that its load asked for."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.context_length = length


@pytest.fixture
def page() -> Page:
    """A page whose engines have the context that was asked for, 200 by default."""
    page = Page()
    make = page.platform.make

    async def with_context(source: Any, header: Any, options: Any) -> Engine:
        plain = await make(source, header, options)
        engine = ContextEngine(options.context_length or 200)
        engine.tokenizer, page.platform.engines[-1] = plain.tokenizer, engine
        return engine

    page.platform.make = with_context
    return page


def loads(page: Page) -> list[dict[str, Any]]:
    """What the clients were told last of the loaded models."""
    return [m["loads"] for m in page.platform.messages if m["kind"] == "loads"][-1]


async def test_a_load_says_what_is_loaded(page: Page) -> None:
    answer = await page.call(LOAD, request={"model": "mini", "context_length": 96, "echo_load_config": True})
    assert answer.pop("load_time_seconds") > 0
    assert answer == {"type": "llm", "instance_id": "mini", "status": "loaded", "load_config": {"context_length": 96}}
    assert loads(page) == [{"model": "mini", "contextLength": 96, "default": True}]
    ignored = {"flash_attention": True, "offload_kv_cache_to_gpu": False, "eval_batch_size": 512}
    answer = await page.call(LOAD, request={"model": "mini", **ignored})
    assert (answer["instance_id"], "load_config" in answer) == ("mini", False)
    assert len(page.platform.engines) == 1


async def test_a_load_changes_no_model_that_is_loaded(page: Page) -> None:
    await page.call("load")
    same = await page.call(LOAD, request={"model": "mini", "context_length": 200})
    assert same["status"] == "loaded"
    error = (await page.call(LOAD, request={"model": "mini", "context_length": 96}))["error"]
    assert (error["code"], error["param"]) == ("invalid_value", "context_length")
    assert "context of 200 tokens" in error["message"]
    assert len(page.platform.engines) == 1
    assert not page.engine.unloaded


async def test_a_load_beside_another_one_changes_nothing(page: Page) -> None:
    """The page's load, with other options, and another program's: whichever comes later finds the model loaded."""
    of_page, of_program, other = await asyncio.gather(
        page.call("load", contextLength=128),
        page.call(LOAD, request={"model": "mini"}),
        page.call(LOAD, request={"model": "mini", "context_length": 64}),
    )
    assert of_page["model"] == of_program["instance_id"] == "mini"
    assert other["error"]["param"] == "context_length"
    assert [engine.context_length for engine in page.platform.engines] == [128]


async def test_a_load_may_repeat_what_another_one_asked_for(page: Page) -> None:
    """Also where memory did not suffice for it."""
    await page.call(LOAD, request={"model": "mini", "context_length": 96})
    engine: Any = page.engine
    engine.context_length = 48
    assert (await page.call(LOAD, request={"model": "mini", "context_length": 96}))["status"] == "loaded"
    assert (await page.call(LOAD, request={"model": "mini", "context_length": 48}))["status"] == "loaded"


async def test_a_context_that_a_request_asks_for_is_never_shortened(page: Page) -> None:
    """The page loads with `clampContext`, which shortens its own."""
    await page.call("load", clampContext=True)
    await page.call(UNLOAD, request={"instance_id": "mini"})
    await page.call(LOAD, request={"model": "mini", "context_length": 96})
    assert loads(page) == [{"model": "mini", "contextLength": 96, "default": True}]


async def test_ollamas_unload_is_told(page: Page) -> None:
    await page.call("load")
    await page.call("ollama.generate", request={"model": "mini", "keep_alive": 0, "stream": False})
    assert [one.get("onDemand") for one in loads(page)] == [True]


async def test_an_unloaded_model_is_loaded_again_by_name_with_its_context(page: Page) -> None:
    await page.call(LOAD, request={"model": "mini", "context_length": 96})
    assert await page.call(UNLOAD, request={"instance_id": "mini"}) == {"instance_id": "mini"}
    assert page.engine.unloaded
    assert loads(page) == [{"model": "mini", "contextLength": 96, "onDemand": True}]
    await page.call("chat.completions", request={"messages": HI, "model": "mini"})
    assert [engine.context_length for engine in page.platform.engines] == [96, 96]
    await page.call(UNLOAD, request={"instance_id": "mini"})
    await page.call(LOAD, request={"model": "mini", "context_length": 64})
    assert page.engine.context_length == 64


async def test_only_models_that_a_request_may_name(page: Page) -> None:
    for model in ("other", "https://wisp/models/other.gguf"):
        error = (await page.call(LOAD, request={"model": model}))["error"]
        assert (error["code"], error["param"]) == ("model_not_found", "model")
    error = (await page.call(UNLOAD, request={"instance_id": "mini"}))["error"]  # it is not loaded
    assert (error["code"], error["param"], error["type"]) == ("model_not_found", "instance_id", "not_found_error")


@pytest.mark.parametrize(
    ("kind", "request_", "code", "param"),
    [
        (LOAD, {}, "invalid_type", "model"),
        (LOAD, {"model": ""}, "invalid_value", "model"),
        (LOAD, {"model": "mini", "context_length": 0}, "invalid_value", "context_length"),
        (LOAD, {"model": "mini", "flash_attention": 1}, "invalid_type", "flash_attention"),
        (LOAD, {"model": "mini", "num_experts": 2}, "unsupported_parameter", "num_experts"),
        (UNLOAD, {"model": "mini"}, "unsupported_parameter", "model"),
        (UNLOAD, {"instance_id": None}, "invalid_type", "instance_id"),
        (UNLOAD, [], "invalid_type", None),
    ],
)
async def test_wrong_requests(page: Page, kind: str, request_: Any, code: str, param: str | None) -> None:
    error = (await page.call(kind, request=request_))["error"]
    assert (error["code"], error["param"]) == (code, param)


def test_errors_have_lm_studios_name_of_the_context() -> None:
    error = reworded(WispError("contextLength is 9, too long.", "context_too_long", param="contextLength"))
    assert (error.message, error.param) == ("context_length is 9, too long.", "context_length")
    memory = reworded(WispError("Choose a shorter contextLength.", "out_of_memory", param="memoryBudget"))
    assert (memory.message, memory.param) == ("Choose a shorter context_length.", "memoryBudget")
    other = WispError("The GPU is lost.", "device_lost")
    assert reworded(other) is other
    assert load_request({"model": "a", "num_experts": None}).context_length is None
