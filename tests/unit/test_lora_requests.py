"""Adapters in loads and requests: what is accepted, what is refused, and the scales that the engine gets."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.openai import lora
from py_engine.errors import WispError
from tests.golden.make.adapters import write_adapter
from tests.support.gguf_bytes import MINI
from tests.support.worker_page import HELLO, HI, Page

URL = "https://wisp/models/{}.gguf"
TWO = [{"scale": 0.5}, {}]


@pytest.fixture
def page(tmp_path: Path) -> Page:
    """A worker that can load two adapters for its model, and one for another architecture."""
    page, path = Page(), tmp_path / "adapter.gguf"
    for name, architecture in (("one", "llama"), ("two", "llama"), ("other", "qwen2")):
        pair = (np.ones((2, 256), np.float32), np.ones((256, 2), np.float32))
        write_adapter(path, architecture, 1.0, {"blk.0.attn_q.weight": pair})
        page.platform.files[URL.format(name)] = path.read_bytes()
    return page


async def load(page: Page, *names: str, **fields: Any) -> Any:
    return await page.call("load", adapters=[URL.format(name) for name in names], **fields)


async def test_scales_of_requests(page: Page) -> None:
    """Those of the load where a request gives none; 0 for the adapters that it leaves out."""
    stats = await load(page, "one", "two", lora=TWO)
    listed = [{"id": 0, "path": URL.format("one"), "scale": 0.5}, {"id": 1, "path": URL.format("two"), "scale": 1.0}]
    assert stats["lora"] == listed
    for given, expected in ((None, None), ([], (0, 0)), ([{"id": 1, "scale": -2}], (0, -2))):
        for kind, request in (
            ("chat.completions", {"messages": HI}),
            ("completions", {"prompt": "Once"}),
            ("responses", {"input": "Hi"}),
            ("llama.completion", {"prompt": "Once"}),
        ):
            await page.call(kind, request=request | {"lora": given})
            assert page.engine.scales_of_last == expected, kind


async def test_default_scales_of_llama_cpp_s_server(page: Page) -> None:
    await load(page, "one", "two", lora=TWO)
    assert [one["scale"] for one in await page.call("llama.loraAdapters")] == [0.5, 1.0]
    assert await page.call("llama.setLoraAdapters", request=[{"id": 0, "scale": 0.25}]) == {"success": True}
    assert page.engine.scales == (0.25, 0.0)
    assert [one["scale"] for one in await page.call("llama.loraAdapters")] == [0.25, 0.0]
    assert await page.code("llama.setLoraAdapters", request=[{"id": 2, "scale": 1}]) == "invalid_value"
    assert await page.code("llama.setLoraAdapters", request={"id": 0}) == "invalid_type"
    assert page.engine.scales == (0.25, 0.0)


async def test_a_request_for_an_adapter_that_is_not_there(page: Page) -> None:
    await load(page, "one")
    answer = await page.call("chat.completions", request={"messages": HI, "lora": [{"id": 3, "scale": 1}]})
    assert (answer["error"]["code"], answer["error"]["param"]) == ("invalid_value", "lora")
    assert "they are 0 to 0" in answer["error"]["message"]
    await page.call("load", name="plain", model=URL.format("mini"))
    answer = await page.call("completions", request={"prompt": "x", "lora": [{"id": 0, "scale": 1}]})
    assert "loaded without any" in answer["error"]["message"]
    answer = await page.call("completions", request={"prompt": "x", "lora": []})
    assert answer["choices"][0]["text"] == HELLO


@pytest.mark.parametrize(
    "given", [{}, "0", [1], [{"id": 0}], [{"id": -1, "scale": 1}], [{"id": 0, "scale": "1"}], [{"id": 0.5, "scale": 1}],
              [{"id": 0, "scale": float("nan")}], [{"id": 0, "scale": 1, "name": "x"}], [{"id": True, "scale": 1}]],
)  # fmt: skip
def test_wrong_scales(given: Any) -> None:
    with pytest.raises(WispError) as error:
        lora.requested(given)
    assert error.value.param == "lora" or str(error.value.param).startswith("lora[")


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (["x"], "invalid_type"),
        ([], "invalid_value"),
        ([{"scale": "1"}], "invalid_type"),
        ([{"scale": 1e9}], "invalid_value"),
        ([{"layers": [3, 1]}], "invalid_value"),
        ([{"layers": [0, 1]}], "invalid_value"),
        ([{"rank": 4}], "invalid_value"),
    ],
)
async def test_wrong_options_of_a_load(page: Page, given: Any, code: str) -> None:
    assert (await load(page, "one", lora=given))["error"] | {"message": ""} == {
        "message": "", "type": "invalid_request_error", "param": "lora", "code": code,
    }  # fmt: skip


async def test_files_that_are_no_adapters_are_refused_before_the_model_is_read(page: Page) -> None:
    for name, code, said in (
        ("other", "adapter_mismatch", "lora[0]: The adapter is for the architecture 'qwen2', the model is 'llama'."),
        ("mini", "not_an_adapter", "lora[0]: This file is a whole model"),
    ):
        error = (await load(page, name))["error"]
        assert (error["code"], error["param"]) == (code, "lora")
        assert error["message"].startswith(said)
    assert await page.code("load", adapters=["adapter"]) == "invalid_value"
    assert await page.code("load", adapters="x") == "invalid_type"
    assert await page.code("load", model=URL.format("one")) == "unsupported_architecture"
    assert not page.platform.engines
    assert all(source.closed for source in page.platform.sources)


async def test_other_adapters_are_another_load(page: Page) -> None:
    await load(page, "one")
    await load(page, "one")
    assert len(page.platform.engines) == 1
    await load(page, "two")
    await load(page, "two", lora=[{"scale": 2}])
    assert len(page.platform.engines) == 3
    told = [m["loads"] for m in page.platform.messages if m["kind"] == "loads"][-1]
    assert told == [{"model": "mini", "adapters": [URL.format("two")], "lora": [{"scale": 2}], "default": True}]


async def test_the_memory_of_adapters_is_estimated(page: Page) -> None:
    without, with_one = await page.call("estimate"), await page.call("estimate", adapters=[URL.format("one")])
    assert with_one["weights"] > without["weights"]
    assert with_one["download"] > without["download"] == MINI.stat().st_size
