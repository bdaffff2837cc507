"""An encoder-decoder model through the SDK: counts, streams, requests at once, logits, an abort, and refusals.

On the CPU; engine/test_parity.py has logits, greedy ids and batches on WebGPU.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from tests.support.answer_cases import PATHS, golden
from tests.support.browser import new_profile
from tests.support.tolerances import assert_close
from tools.serve import Server

GOLDEN, ABOUT = golden(PATHS["t5"])
SCRIPT = """async ({ prompt, answer }) => {
    const { Wisp } = await import("/wisp.js");
    const engine = await Wisp.create();
    const model = "/repo/tests/golden/encoder_decoder/t5.F16.gguf";
    const backend = "cpu";
    await engine.load({ model, backend, kvType: "f32" });
    const ask = { prompt, max_tokens: 16, temperature: 0, ignore_eos: true };
    const whole = await engine.completions.create(ask);
    const streamed = { text: "" };
    const stream = { ...ask, stream: true, stream_options: { include_usage: true } };
    for await (const chunk of await engine.completions.create(stream)) {
        streamed.text += chunk.choices[0]?.text ?? "";
        streamed.usage = chunk.usage ?? streamed.usage;
    }
    const other = { ...ask, prompt: prompt.slice(0, 7), seed: 3, temperature: 1 };
    const alone = [await engine.completions.create(ask), await engine.completions.create(other)];
    const both = await Promise.all([engine.completions.create(ask), engine.completions.create(other)]);
    const chat = { messages: [{ role: "user", content: "Hello world" }], seed: 5, max_tokens: 8, ignore_eos: true };
    const { choices, usage } = await engine.chat.completions.create(chat);
    const plain = await engine.tokenize("Hello world", { addSpecial: true });
    const controller = new AbortController();
    const aborted = { pieces: 0, after: 0 };
    const long = { ...ask, prompt: prompt.slice(0, 5), max_tokens: 200, stream: true, signal: controller.signal };
    for await (const chunk of await engine.completions.create(long)) {
        if (controller.signal.aborted) aborted.after++;
        if (chunk.choices[0]?.text && ++aborted.pieces === 2) controller.abort();
    }
    const again = (await engine.completions.create(ask)).choices[0].text;
    const refused = async (call) => {
        try {
            await call();
            return "not refused";
        } catch (error) {
            return error.code;
        }
    };
    const words = Array(300).fill("word").join(" ");
    const of = (one) => one.choices[0].text;
    const { logits, shape } = await engine.evaluate({ prompt: "Hello world", ids: answer });
    const found = {
        text: of(whole), usage: whole.usage, streamed, alone: alone.map(of), both: both.map(of), aborted, again,
        logits: Array.from(logits), shape, one: (await engine.evaluate(prompt)).shape,
        chat: { usage, text: choices[0].message.content, prompt: plain.length },
        refusals: {
            too_long: await refused(() => engine.completions.create({ ...ask, prompt: Array(600).fill(9) })),
            continued: await refused(() => engine.chat.completions.create({
                messages: [...chat.messages, { role: "assistant", content: "Well" }], continue_final_message: true })),
            embeddings: await refused(() => engine.embeddings.create({ input: "Hello" })),
            quality: await refused(() => engine.quality.perplexity(words, { contextLength: 8 })),
            draft: await refused(() => engine.load({ model, draft: model, backend })),
        },
    };
    await engine.unload();
    return found;
}"""


@pytest.fixture(scope="module")
def found(chromium: Callable[[str | None], Browser], server: Server) -> Any:
    context = new_profile(chromium(None))
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    given = {"prompt": GOLDEN["prompt"].tolist(), "answer": GOLDEN["answer"].tolist()}
    result = page.evaluate(SCRIPT, given)
    context.close()
    return result


def test_completions(found: Any) -> None:
    """The prompt's tokens are the encoder's."""
    usage = found["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(GOLDEN["prompt"]), 16)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
    assert found["streamed"]["text"] == found["text"]
    assert found["streamed"]["usage"]["completion_tokens"] == 16


def test_requests_at_once(found: Any) -> None:
    assert found["both"] == found["alone"]
    assert found["alone"][0] == found["text"]


def test_a_chat_is_its_text(found: Any) -> None:
    assert found["chat"]["usage"]["prompt_tokens"] == found["chat"]["prompt"]
    assert found["chat"]["usage"]["completion_tokens"] == 8


def test_logits_of_an_answer(found: Any) -> None:
    """Of a text, as the reference has them. Of ids alone, those after the token that answers begin with."""
    from tests.golden.make.reference import Reference
    from tests.golden.make.reference_t5 import decoder_logits

    assert found["shape"] == list(GOLDEN["logits"].shape)
    assert found["one"] == [1, GOLDEN["logits"].shape[1]]
    ids = next(text["ids"] for text in ABOUT["texts"] if text["text"] == "Hello world")
    want = decoder_logits(Reference(PATHS["t5"]), ids, [ABOUT["start"], *GOLDEN["answer"].tolist()])
    assert_close(want.astype(np.float32), np.array(found["logits"], np.float32).reshape(found["shape"]), "f32")


def test_an_abort(found: Any) -> None:
    """The stream ends, and the next request has the device."""
    assert found["aborted"] == {"pieces": 2, "after": 0}
    assert found["again"] == found["text"]


def test_refusals(found: Any) -> None:
    assert found["refusals"] == {
        "too_long": "context_length_exceeded",
        "continued": "unsupported_parameter",
        "embeddings": "invalid_value",
        "quality": "invalid_value",
        "draft": "unsupported_parameter",
    }
