"""Bad models and bad requests through the SDK: each is rejected with its code, and the loaded model still answers."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile
from tools.serve import Server

SET_UP = """async () => {
  const { Wisp } = await import("/wisp.js");
  const engine = await Wisp.create();
  await engine.load({ backend: "cpu" });
  const { data } = await engine.models.list();
  const good = new Uint8Array(await (await fetch(data.find((m) => m.loaded).url)).arrayBuffer());
  const code = async (promise) => {
    try { return await promise, "no error"; } catch (error) { return `${error.code} ${error.param ?? ""}`.trim(); }
  };
  // A copy of the model whose header has `to` where it had `from`, as many bytes.
  const changed = (from, to) => {
    const bytes = good.slice();
    const [a, b] = [from, to].map((x) => (typeof x === "string" ? new TextEncoder().encode(x) : x));
    const at = bytes.findIndex((_, i) => a.every((byte, j) => bytes[i + j] === byte));
    if (at < 0 || a.length !== b.length) throw new Error(`cannot change ${from}`);
    bytes.set(b, at);
    return bytes;
  };
  // The bytes of a string value in the metadata, from the end of its key on.
  const text = (key, value) => `${key}\\u0008\\0\\0\\0${String.fromCharCode(value.length)}${"\\0".repeat(7)}${value}`;
  const load = (bytes, options = {}) =>
    code(engine.load({ model: new File([bytes], "bad.gguf"), backend: "cpu", ...options }));
  const ask = (request) => engine.chat.completions.create(
    { messages: [{ role: "user", content: "Hello" }], temperature: 0, max_tokens: 20, ...request });
  Object.assign(globalThis, { engine, good, code, changed, text, load, ask });
}"""
HELLO = "Hello! How can I help you today?"

MODELS = {
    "load(good.slice(0, 2))": "not_gguf",
    "load(new TextEncoder().encode('<!doctype html><title>Log in</title>'))": "not_gguf",
    "load(good.slice(0, 3_000_000))": "truncated_file",
    "load(good.slice(0, 50_000))": "truncated_file",
    "load(good.slice(0, 20))": "truncated_file",
    "load(changed([71, 71, 85, 70, 3], [71, 71, 85, 70, 1]))": "unsupported_version",
    "load(changed([3, 0, 0, 0, 92, 0, 0, 0], [3, 0, 0, 0, 92, 0, 0, 9]))": "corrupt_header",
    "load(changed('general.type', 'general.name'))": "corrupt_header",
    "load(changed(text('general.architecture', 'llama'), text('general.architecture', 'llamb')))": (
        "unsupported_architecture"
    ),
    "load(changed('blk.3.ffn_up.weight', 'blk.3.ffn_uq.weight'))": "missing_tensor",
    "load(changed('llama.block_count', 'llama.block_counu'))": "missing_metadata",
    "load(changed(text('tokenizer.ggml.model', 'gpt2'), text('tokenizer.ggml.model', 'xxxx')))": (
        "unsupported_tokenizer"
    ),
    "load(changed('tokenizer.ggml.tokens', 'tokenizer.ggml.tokenz'))": "missing_metadata",
    "load(changed('feed_forward_length\\u0004\\0\\0\\0\\0\\u0003', 'feed_forward_length\\u0004\\0\\0\\0\\0\\u0002'))": (
        "bad_tensor_shape"
    ),
    "load(good, { contextLength: 1_000_000 })": "context_too_long contextLength",
    "load(good, { contextLength: 0 })": "invalid_value contextLength",
    "load(good, { backend: 'webgpu' })": "no_webgpu",
    "load(good, { backend: 'tpu' })": "invalid_value backend",
    "load(good, { kvType: 5 })": "invalid_type kvType",
    "code(engine.load({ model: 'no-such-model' }))": "not_found model",
    "code(engine.load({ model: 5 }))": "invalid_type model",
    "code(engine.load('wisp-mini-q8_0'))": "invalid_type",  # and not the default model
    "code(engine.load(new File([good], 'm.gguf')))": "invalid_type",
    "code(engine.estimate('wisp-mini-q8_0'))": "invalid_type",
    "code(engine.load({ contextlength: 512 }))": "unsupported_parameter contextlength",
    "code(engine.load({ model: 'maker/Model-GGUF' }))": "invalid_value model",
    "code(engine.load({ model: ['https://huggingface.co/maker/Model/tree/main'] }))": "invalid_value model",
    "code(engine.models.inspect('maker/Model-GGUF'))": "invalid_value model",
    "code(engine.load({ model: [] }))": "invalid_value model",
    "code(engine.load({ model: '/nowhere.gguf' }))": "http_error",
    "code(engine.load({ model: 'http://127.0.0.1:9/x.gguf' }))": "network_error",
}
REQUESTS = {
    "code(ask({ messages: [] }))": "empty_messages messages",
    "code(ask({ messages: 'Hello' }))": "invalid_type messages",
    "code(engine.chat.completions.create())": "invalid_type",
    "code(engine.chat.completions.create('Hello'))": "invalid_type",
    "code(engine.chat.completions.create([{ role: 'user', content: 'Hello' }]))": "invalid_type",
    "code(engine.embeddings.create('Hello'))": "invalid_type",
    "code(ask({ messages: [{ role: 'robot', content: '' }] }))": "invalid_value messages[0].role",
    "code(ask({ messages: [{ role: 'user', content: 'word '.repeat(5000) }] }))": "context_length_exceeded messages",
    "code(ask({ temperature: 'hot' }))": "invalid_type temperature",
    "code(ask({ temperature: 9 }))": "invalid_value temperature",
    "code(ask({ seed: 5n }))": "invalid_type",
    "code(ask({ tools: [{ type: 'function' }] }))": "invalid_type tools[0].function",
    "code(ask({ stream: true, messages: [] }))": "empty_messages messages",
    "code(ask({ stop: () => 1 }))": "invalid_type",
    "code(engine.completions.create({ prompt: [999999] }))": "invalid_value prompt",
    "code(engine.tokenize(5))": "invalid_type text",
    "code(engine.detokenize([-1]))": "invalid_value ids",
    "code(engine.evaluate([]))": "invalid_value ids",
    "code(engine.applyTemplate([{}], { template: '{% if %}' }))": "bad_chat_template",
    "code(ask({ grammar: 'root ::= \"a\" root' }))": "invalid_value grammar",  # the engine would hold endless text
    "code(engine.validate({ grammar: 'root ::= root root | [a]' }, 'a'.repeat(9e3)))": "unsupported_parameter grammar",
    "code(engine.validate({ grammar: 'root ::= r\\nr ::= r [+] r | [a]' }, 'a+'.repeat(9e3)))": "unsupported_parameter",
    "code(engine.validate({ grammar: 'root ::= (((\"a\"*)*)*)*' }, 'a'.repeat(3000)))": "no error",
    "code(ask({ messages: [{ role: 'user', content: 'Hi' }], signal: AbortSignal.abort() }))": "aborted",
}


@pytest.fixture(scope="module")
def sdk_page(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """A page with the SDK and Wisp Mini on the CPU, in a browser without WebGPU."""
    context = new_profile(chromium(None))
    page = context.new_page()
    page.set_default_timeout(120_000)
    page.goto(f"{server.url}manifest.webmanifest")
    page.evaluate(SET_UP)
    yield page
    context.close()


def answer(page: Page) -> Any:
    return page.evaluate("async () => (await ask({})).choices[0].message.content")


@pytest.mark.parametrize(("call", "code"), MODELS.items())
def test_bad_models(sdk_page: Page, call: str, code: str) -> None:
    assert sdk_page.evaluate(f"() => {call}") == code
    stats = sdk_page.evaluate("() => engine.stats()")
    assert (stats["model"], stats["backend"]) == ("wisp-mini-q4_0", "cpu")


@pytest.mark.parametrize(("call", "code"), REQUESTS.items())
def test_bad_requests(sdk_page: Page, call: str, code: str) -> None:
    assert sdk_page.evaluate(f"() => {call}") == code


def test_the_model_still_answers(sdk_page: Page) -> None:
    assert answer(sdk_page) == HELLO


def test_before_a_model_and_after_unload(sdk_page: Page) -> None:
    sdk_page.evaluate("() => engine.unload()")
    assert sdk_page.evaluate("() => code(ask({}))") == "model_not_loaded"
    assert sdk_page.evaluate("() => load(good.slice(0, 99))") == "truncated_file"
    assert sdk_page.evaluate("() => code(ask({}))") == "model_not_loaded"
    assert sdk_page.evaluate("() => load(good)") == "no error"
    assert answer(sdk_page) == HELLO
