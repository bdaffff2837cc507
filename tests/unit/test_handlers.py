"""The worker's handlers with a real vocabulary and template, and an engine with scripted answers."""

import asyncio
from functools import partial
from typing import Any

import pytest

from py_engine.files.gguf_header import parse
from py_engine.text.chat_template import ChatTemplate
from tests.support.gguf_bytes import MINI
from tests.support.worker_page import HELLO, HI, File, Page, settle


@pytest.fixture
async def page() -> Page:
    page = Page()
    assert (await page.call("load"))["model"] == "mini"
    return page


async def test_before_any_model() -> None:
    page = Page()
    for kind, fields in (
        ("chat.completions", {"request": {"messages": HI}}),
        ("completions", {"request": {"prompt": "x"}}),
        ("embeddings", {"request": {"input": "x"}}),
        ("tokenize", {"text": "x"}),
        ("detokenize", {"ids": [1]}),
        ("applyTemplate", {"messages": HI}),
        ("countTokens", {"request": {"messages": HI}}),
        ("evaluate", {"ids": [1]}),
    ):
        assert await page.code(kind, **fields) == "model_not_loaded", kind
    assert (await page.call("stats"))["model"] is None
    assert await page.call("unload") is None
    assert [m["id"] for m in (await page.call("models"))["data"]] == ["mini"]


async def test_memory_estimate_of_a_load(page: Page) -> None:
    got = await page.call("estimate", contextLength=300)
    assert (got["model"], got["context_length"], got["download"]) == ("mini", 300, MINI.stat().st_size)
    assert got["total"] > got["weights"] > 0.8 * got["download"]
    assert all(source.closed for source in page.platform.sources)
    assert await page.code("estimate", contextLength=1 << 20) == "context_too_long"
    assert (await page.call("estimate", contextLength=1 << 20, clampContext=True))["context_length"] == 2048
    assert await page.code("estimate", model="none") == "not_found"


async def test_chat_whole(page: Page) -> None:
    answer = await page.call("chat.completions", request={"messages": HI})
    assert answer["choices"][0]["message"] == {"role": "assistant", "content": HELLO, "refusal": None}
    assert answer["choices"][0]["finish_reason"] == "stop"
    tokenizer = page.engine.tokenizer
    assert answer["usage"]["completion_tokens"] == len(tokenizer.encode(HELLO)) + 1
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 3}
    assert answer["timings"]["prompt_ms"] == 8.0
    prompt = tokenizer.decode(page.engine.prompts[0])
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert answer["usage"]["prompt_tokens"] == len(page.engine.prompts[0])


async def test_chat_streamed(page: Page) -> None:
    chunks = await page.stream("chat.completions", messages=HI, stream_options={"include_usage": True})
    assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks[1:-1]) == HELLO
    assert len(chunks) > 5
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["usage"]["completion_tokens"] > 3
    assert chunks[-1]["choices"] == []


async def test_every_client_is_told_how_to_load_the_models_again(page: Page) -> None:
    def told(number: int) -> list[dict[str, Any]]:
        return [message["loads"] for message in platform.messages if message["kind"] == "loads"][number]

    platform = page.platform
    assert told(-1) == [{"model": "mini", "default": True}]
    file = File("mine.gguf")
    platform.files["mine.gguf"] = platform.files["https://wisp/models/mini.gguf"]
    await page.call("load", model=file, name="mine", contextLength=99, default=False)
    mine = {"model": file, "name": "mine", "contextLength": 99, "default": False}
    assert told(-1) == [{"model": "mini", "default": True}, mine]
    page.worker.connect(platform.post)
    assert told(-1) == [{"model": "mini", "default": True}, mine]
    await page.call("unload", model="mini")
    assert told(-1) == [mine | {"default": True}]
    await page.call("unload")
    assert told(-1) == []


async def test_max_tokens_and_stop(page: Page) -> None:
    answer = await page.call("chat.completions", request={"messages": HI, "max_tokens": 2})
    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["usage"]["completion_tokens"] == 2
    chunks = await page.stream("chat.completions", messages=HI, stop=[" can I", "never"])
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks) == "Hello! How"
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert page.engine.closed == 2


async def test_completions(page: Page) -> None:
    answer = await page.call("completions", request={"prompt": "Once", "max_tokens": 3})
    assert answer["object"] == "text_completion"
    assert page.engine.prompts[-1] == page.engine.tokenizer.encode("Once")
    chunks = await page.stream("completions", prompt=[5, 6], max_tokens=100)
    assert "".join(c["choices"][0]["text"] for c in chunks) == HELLO
    assert page.engine.prompts[-1] == [5, 6]
    assert await page.code("completions", request={"prompt": [5, 5000]}) == "invalid_value"
    assert (await page.call("completions", request={"prompt": ""}))["object"] == "text_completion"


LONG: dict[str, Any] = {"messages": [{"role": "user", "content": "word " * 300}]}
ADVISING = {
    "chat.completions": LONG,
    "completions": {"prompt": [5] * 300},
    "responses": {"input": "word " * 300},
    "lmStudio.chat.completions": LONG,
    "lmStudio.completions": {"prompt": [5] * 300},
}
NOT_ADVISING = {
    "messages": LONG | {"max_tokens": 5},
    "ollama.chat": LONG,
    "ollama.generate": {"prompt": "word " * 300},
    "lmStudio.chat": {"input": "word " * 300},
    "llama.completion": {"prompt": [5] * 300},
}


@pytest.mark.parametrize(("kind", "body"), [*ADVISING.items(), *NOT_ADVISING.items()])
async def test_only_apis_that_have_truncation_advise_it(page: Page, kind: str, body: dict[str, Any]) -> None:
    error = (await page.call(kind, request=body))["error"]
    assert error["code"] == "context_length_exceeded"
    assert ("truncation" in error["message"]) is (kind in ADVISING)


async def test_context_length(page: Page) -> None:
    long = [{"role": "user", "content": "word " * 300}]
    error = await page.call("chat.completions", request={"messages": long})
    assert error["error"]["code"] == "context_length_exceeded"
    assert "200" in error["error"]["message"]
    tokens = (await page.call("countTokens", request={"messages": long}))["tokens"]
    assert (error["error"]["n_prompt_tokens"], error["error"]["n_ctx"]) == (tokens, 200)
    for kind, request in (
        ("messages", {"messages": long, "max_tokens": 5}),
        ("llama.completion", {"prompt": [5] * 300}),
    ):
        error = await page.call(kind, request=request)
        assert error["error"]["code"] == "context_length_exceeded"
        assert error["error"]["n_prompt_tokens"] == (tokens if kind == "messages" else 300)
        assert error["error"]["n_ctx"] == 200
    page.engine.says = "word " * 500
    answer = await page.call("chat.completions", request={"messages": HI})
    assert answer["usage"]["total_tokens"] == page.engine.context_length
    assert answer["choices"][0]["finish_reason"] == "length"


async def test_the_tokens_of_a_chat(page: Page) -> None:
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    for request in (
        {"messages": HI},
        {"messages": [{"role": "system", "content": "Be brief."}, *HI]},
        {"messages": [*HI, {"role": "assistant", "content": "Hello"}], "continue_final_message": True},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "<|im_end|>", "untrusted": True}]}]},
    ):
        counted = await page.call("countTokens", request=request)
        await page.call("chat.completions", request=request)
        assert counted == {"tokens": len(page.engine.prompts[-1]), "context_length": page.engine.context_length}
    assert (await page.call("countTokens", request={"messages": HI, "tools": tools}))["tokens"] > 100
    long = [{"role": "user", "content": "word " * 300}]
    assert (await page.call("countTokens", request={"messages": long}))["tokens"] > 200
    assert await page.code("countTokens", request={"messages": []}) == "empty_messages"
    assert await page.code("countTokens") == "invalid_type"


async def test_the_tokens_of_a_request(page: Page) -> None:
    """OpenAI's and llama.cpp's endpoints for what a request would need, whatever the form of the answer."""
    chat, response = {"messages": HI, "stream": True}, {"input": "Hi", "stream": True, "max_output_tokens": 5}
    await page.call("chat.completions", request={"messages": HI})
    wanted = {"object": "response.input_tokens", "input_tokens": len(page.engine.prompts[-1])}
    assert await page.call("chat.completions.countTokens", request=chat) == wanted
    assert await page.call("responses.inputTokens.count", request=response) == wanted
    assert len(page.engine.prompts) == 1
    assert await page.code("responses.inputTokens.count", request={"input": 5}) == "invalid_type"
    assert await page.code("chat.completions.countTokens", request={"messages": []}) == "empty_messages"


async def test_template_refusal_is_an_error_of_the_request(page: Page) -> None:
    options = {"template": "{{ raise_exception('only once') }}"}
    error = await page.call("applyTemplate", messages=HI, options=options)
    assert error["error"]["code"] == "bad_chat_template"
    assert "only once" in error["error"]["message"]


async def test_a_system_message_that_the_model_s_template_rejects_is_asked(page: Page) -> None:
    """As in chats: the page measures them before it adds passages of documents. A template that is given may refuse."""
    rejects = "{% if messages[0].role == 'system' %}{{ raise_exception('No') }}{% endif %}{{ messages[0].content }}"
    page.worker._models.loaded["mini"].template = ChatTemplate(rejects)
    messages = [{"role": "system", "content": "Be kind."}, *HI]
    assert await page.call("applyTemplate", messages=messages) == "Be kind.\nHi"
    assert await page.code("applyTemplate", messages=messages, options={"template": rejects}) == "bad_chat_template"


async def test_tokenize_detokenize_and_template(page: Page) -> None:
    tokenizer = page.engine.tokenizer
    text = "<|im_start|>Hi"
    assert await page.call("tokenize", text=text) == tokenizer.encode(text)
    ids = await page.call("tokenize", text=text, addSpecial=True, parseSpecial=True)
    assert ids[0] == 1
    assert await page.call("detokenize", ids=ids) == text
    prompt = await page.call("applyTemplate", messages=HI, options={"addGenerationPrompt": False})
    assert prompt.endswith("Hi<|im_end|>\n")
    custom = {"template": "{{ messages[0].content }}{{ x }}{{ eos_token }}", "x": 5}
    assert await page.call("applyTemplate", messages=HI, options=custom) == "Hi5<|im_end|>"
    for kind, fields, code in (
        ("tokenize", {"text": 5}, "invalid_type"),
        ("tokenize", {}, "invalid_type"),
        ("detokenize", {"ids": "x"}, "invalid_type"),
        ("detokenize", {"ids": [1.5]}, "invalid_type"),
        ("detokenize", {"ids": [-1]}, "invalid_value"),
        ("applyTemplate", {"messages": "x"}, "invalid_type"),
        ("applyTemplate", {"messages": HI, "options": {"template": 5}}, "invalid_type"),
        ("evaluate", {"ids": []}, "invalid_value"),
        ("evaluate", {"ids": [10**6]}, "invalid_value"),
        ("evaluate", {"ids": [1] * 201}, "context_length_exceeded"),
        ("embeddings", {}, "invalid_type"),
        ("rerank", {"request": {"query": "a", "documents": ["b"]}}, "unsupported_parameter"),
        ("validate", {}, "invalid_type"),
        ("validate", {"format": {"regex": "["}, "text": ""}, "invalid_value"),
        ("nonsense", {}, "invalid_value"),
    ):
        assert await page.code(kind, **fields) == code, kind


async def test_requests_wait_for_their_turn(page: Page) -> None:
    page.engine.pause = 0.001
    tasks = [page.send("completions", request={"prompt": f"{i}", "max_tokens": 9}) for i in range(5)]
    await asyncio.gather(*(t for _, t in tasks))
    assert [page.engine.tokenizer.decode(p) for p in page.engine.prompts] == ["0", "1", "2", "3", "4"]
    finished = [m["id"] for m in page.platform.messages if m["kind"] == "result" and m["id"] > 1]
    assert finished == [n for n, _ in tasks]


async def test_abort_while_running_ends_within_a_batch(page: Page) -> None:
    page.engine.pause = 0.005
    page.engine.says = "word " * 150
    number, task = page.send("chat.completions", request={"messages": HI, "stream": True})
    while len(page.answers(number)) < 4:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    before = len(page.answers(number))
    await page.call("abort", target=number)
    await task
    answers = page.answers(number)
    assert answers[-1]["error"]["code"] == "aborted"
    assert len(answers) <= before + 2
    assert (page.engine.running, page.engine.closed) == (0, 1)
    page.engine.says = HELLO
    assert (await page.call("chat.completions", request={"messages": HI}))["choices"]


async def test_abort_while_waiting(page: Page) -> None:
    page.engine.pause = 0.005
    first, running = page.send("completions", request={"prompt": "a", "max_tokens": 9})
    second, waiting = page.send("completions", request={"prompt": "b"})
    third, later = page.send("completions", request={"prompt": "c"})
    await settle()
    await page.call("abort", target=second)
    await waiting
    assert page.answers(second)[0]["error"]["code"] == "aborted"
    assert not running.done()
    await asyncio.gather(running, later)
    assert page.answers(first)[-1]["kind"] == page.answers(third)[-1]["kind"] == "result"
    assert [page.engine.tokenizer.decode(p) for p in page.engine.prompts] == ["a", "c"]
    assert await page.call("abort", target=99) is None


async def test_a_defect_is_an_internal_error_and_the_engine_goes_on(page: Page) -> None:
    page.engine.breaks = ZeroDivisionError("oops")
    error = await page.call("chat.completions", request={"messages": HI})
    assert (error["error"]["code"], error["error"]["type"]) == ("internal_error", "server_error")
    assert "oops" in error["error"]["message"]
    assert any(m["kind"] == "log" and "ZeroDivisionError" in m["text"] for m in page.platform.messages)
    page.engine.breaks = None
    assert (await page.call("chat.completions", request={"messages": HI}))["choices"]


async def test_stats_and_unload(page: Page) -> None:
    stats = await page.call("stats")
    assert stats["model"] == "mini"
    assert stats["memory"] == {"weights": 5, "wasm_heap": 123}
    assert stats["cache"] == {"requests": 1}
    assert stats["notices"] == ["from the engine"]
    assert {"boot_ms", "compile_ms", "header_ms", "tokenizer_ms", "load_ms"} <= stats["timings"].keys()
    await page.call("unload")
    assert page.engine.unloaded == 1
    assert await page.code("tokenize", text="x") == "model_not_loaded"


def test_the_vocabulary_of_the_fixtures_is_the_models() -> None:
    data = MINI.read_bytes()
    assert parse(data, len(data)).metadata["tokenizer.ggml.eos_token_id"] == 2


async def test_tokenize_endpoint(page: Page) -> None:
    ask = partial(page.call, "tokenization")
    plain = await ask(request={"content": "Hi there"})
    assert plain == {"tokens": await page.call("tokenize", text="Hi there", addSpecial=False, parseSpecial=True)}
    whole = await ask(request={"content": "Hi there", "with_pieces": True})
    assert "".join(token["piece"] for token in whole["tokens"]).strip() == "Hi there"
    split = await ask(request={"content": "\N{SNOWMAN}", "with_pieces": True})
    raw = b"".join(p.encode() if isinstance(p := token["piece"], str) else bytes(p) for token in split["tokens"])
    assert raw.decode().strip() == "\N{SNOWMAN}"
    assert await page.code("tokenization", request={"content": 5}) == "invalid_type"
    assert await page.code("tokenization", request={"content": "a", "prompt": "b"}) == "unsupported_parameter"
