"""wisp.js, used by another program on the page."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import new_profile
from tests.support.chat_page import open_page
from tools.paths import ROOT
from tools.serve import Server

STORY = "Write a short story about a dragon named Ember who finds a silver key."


@pytest.fixture(scope="module")
def sdk(chromium: Callable[[str | None], Browser], server: Server) -> Iterator[Page]:
    """The page, with `globalThis.engine` from wisp.js and `failure(promise)`, which gives the error of a rejection."""
    context = new_profile(chromium("swiftshader"))
    page = open_page(context, server.url)
    page.evaluate(
        """async () => {
            globalThis.Wisp = (await import("/wisp.js")).Wisp;
            globalThis.WispError = (await import("/wisp.js")).WispError;
            globalThis.engine = await Wisp.create();
            globalThis.ask = (content, more = {}) =>
                ({ messages: [{ role: "user", content }], temperature: 0, ...more });
            globalThis.failure = async (promise) => {
                try { await promise; return null; }
                catch (error) {
                    const { name, code } = error;
                    return { ...error.error, own: error instanceof WispError, name, top: code };
                }
            };
        }"""
    )
    yield page
    context.close()


def run(page: Page, code: str) -> Any:
    """The value of an async function body."""
    return page.evaluate(f"async () => {{ {code} }}")


def test_the_page_and_its_guests_share_one_engine(sdk: Page) -> None:
    assert run(sdk, "return await Wisp.create() === await Wisp.create();")
    assert run(sdk, "return (await engine.stats()).model;")  # the model that the page loaded


def test_stats_have_the_fields_of_their_type(sdk: Page) -> None:
    types = (ROOT / "app" / "sdk" / "figures.d.ts").read_text(encoding="utf-8")

    def fields(name: str, text: str = types) -> set[str]:
        body = text.partition(f"export interface {name} {{\n")[2].partition("\n}")[0]
        return set(re.findall(r"^  (\w+)\??:", body, re.M))

    stats = run(sdk, "await engine.chat.completions.create(ask('Hi', { max_tokens: 2 })); return engine.stats();")
    assert set(stats) == fields("Stats")
    assert set(stats["last"]) == fields("LastRequest")
    sample = run(
        sdk, "const m = engine.monitor(); const s = await new Promise((r) => (m.onSample = r)); m.stop(); return s;"
    )
    assert set(sample) == fields("Sample")


def test_adapters_by_address_and_as_files(sdk: Page) -> None:
    """Each request has the scales that it gives; the default model of the page has no adapters."""
    out = run(
        sdk,
        """
        const folder = "/repo/tests/golden/";
        const data = await (await fetch(`${folder}lora/lora-llama.Q4_K_M.b.gguf`)).arrayBuffer();
        const stats = await engine.load({
            model: `${folder}llama/llama.Q4_K_M.gguf`, name: "adapted", default: false, backend: "cpu",
            lora: [`${folder}lora/lora-llama.Q4_K_M.a.gguf`, { model: new File([data], "b.gguf"), scale: 0 }],
        });
        const text = async (lora) => {
            const request = { model: "adapted", prompt: [5, 9, 13, 40], max_tokens: 12, temperature: 0, lora };
            return (await engine.completions.create({ ...request, ignore_eos: true })).choices[0].text;
        };
        const a = [{ id: 0, scale: 1 }];
        const b = [{ id: 1, scale: 1 }];
        const texts = await Promise.all([text(undefined), text(a), text(b), text([])]);
        const wrong = await failure(text([{ id: 2, scale: 1 }]));
        const refused = await failure(engine.load({ name: "x", lora: `${folder}lora/lora-phi3.F16.a.gguf` }));
        const http = async (init) => (await engine.fetch("/lora-adapters", init)).json();
        const listed = [await http(), await http({ method: "POST", body: "[]" })];
        await engine.unload("adapted");
        return { lora: stats.lora, texts, wrong, refused, listed };
        """,
    )
    assert [(one["id"], one["path"].rsplit("/")[-1], one["scale"]) for one in out["lora"]] == [
        (0, "lora-llama.Q4_K_M.a.gguf", 1),
        (1, "b.gguf", 0),
    ]
    default, a, b, neither = out["texts"]
    assert default == a
    assert len({a, b, neither}) == 3
    assert (out["wrong"]["code"], out["wrong"]["param"]) == ("invalid_value", "lora")
    assert (out["refused"]["code"], out["refused"]["param"]) == ("adapter_mismatch", "lora")
    assert out["listed"] == [[], {"success": True}]


def test_a_draft_model_of_the_catalog(sdk: Page) -> None:
    """The text is the same. A model of another vocabulary is refused, and the engine stays usable."""
    out = run(
        sdk,
        """
        const options = { model: "/repo/static/models/wisp-mini-q8_0.gguf", default: false, backend: "cpu" };
        const load = (name, more) => engine.load({ ...options, contextLength: 256, name, ...more });
        const ask = { messages: [{ role: "user", content: "Tell me about a dragon." }], max_tokens: 48 };
        const text = async (model) =>
            (await engine.chat.completions.create({ ...ask, temperature: 0, model })).choices[0].message.content;
        await load("plain", { speculation: false });
        const wrong = await failure(load("wrong", { draft: "/repo/tests/golden/llama/llama.F16.gguf" }));
        await load("drafted", { draft: "wisp-mini-q4_0" });
        const texts = [await text("plain"), await text("drafted")];
        const { totals, memory } = await engine.stats({ model: "drafted" });
        const alone = (await engine.stats({ model: "plain" })).memory;
        for (const name of ["plain", "drafted"]) await engine.unload(name);
        return { wrong, texts, totals, weights: [alone.weights, memory.weights] };
        """,
    )
    assert (out["wrong"]["code"], out["wrong"]["param"]) == ("draft_mismatch", "draft")
    assert out["texts"][0] == out["texts"][1] != ""
    assert 0 < out["totals"]["model_accepted"] <= out["totals"]["model_drafted"]
    assert out["weights"][1] > 1.5 * out["weights"][0]


def test_a_whole_answer_has_the_shape_of_openai(sdk: Page) -> None:
    answer = run(sdk, 'return engine.chat.completions.create(ask("What is the capital of Italy?"));')
    assert answer["object"] == "chat.completion"
    assert "Rome" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]


def test_a_loads_memory_is_estimated_before_it(sdk: Page) -> None:
    """The model's own figures, once loaded, are the same."""
    asked = run(sdk, 'return engine.estimate({ backend: "webgpu", contextLength: 512, kvType: "q8_0" });')
    assert asked["fits"] is True
    assert asked["download"] > asked["weights"] > 0.9 * asked["download"]
    assert asked["context_length"] == 512
    longer = run(sdk, 'return engine.estimate({ backend: "webgpu", contextLength: 1024, kvType: "q8_0" });')
    assert longer["weights"] == asked["weights"]
    assert longer["kv"] > 1.5 * asked["kv"]
    assert run(sdk, 'return failure(engine.estimate({ kvType: "q1" }));')["param"] == "kvType"


def test_a_second_turn_computes_only_what_is_new(sdk: Page) -> None:
    first, second, stats = run(
        sdk,
        """
        const request = ask("What is the capital of Portugal?");
        const first = await engine.chat.completions.create(request);
        request.messages.push(first.choices[0].message, { role: "user", content: "And of Spain?" });
        const second = await engine.chat.completions.create(request);
        return [first.usage, second.usage, (await engine.stats()).last];
        """,
    )
    # the first turn is cached except its last token, "<|im_end|>": no later token needed its keys and values
    assert stats["cached_tokens"] >= first["total_tokens"] - 2
    assert stats["prompt_tokens"] == second["prompt_tokens"]
    assert second["prompt_tokens_details"]["cached_tokens"] == stats["cached_tokens"]


def test_chunks_add_up_to_the_whole_answer(sdk: Page) -> None:
    chunks = run(
        sdk,
        """const chunks = [];
        for await (const chunk of await engine.chat.completions.create(ask("What is the capital of Italy?",
            { stream: true, stream_options: { include_usage: true } }))) chunks.push(chunk);
        return chunks;""",
    )
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
    whole = run(sdk, 'return engine.chat.completions.create(ask("What is the capital of Italy?"));')
    assert text == whole["choices"][0]["message"]["content"]
    assert chunks[-1]["usage"]["completion_tokens"] > 0


def test_leaving_the_loop_stops_the_engine(sdk: Page) -> None:
    part, text, tokens = run(
        sdk,
        f"""const last = async () => (await engine.stats()).last.completion_tokens;
        const long = {{ max_tokens: 1500, ignore_eos: true, stream: true }}; // a busy page may be late
        for await (const chunk of await engine.chat.completions.create(ask({STORY!r}, long)))
            if (chunk.choices[0]?.delta?.content) break;
        while ((await engine.stats()).models[0].requests) await new Promise((resolve) => setTimeout(resolve, 5));
        const part = await last();
        const answer = await engine.chat.completions.create(ask("What is the capital of Italy?", {{ max_tokens: 8 }}));
        return [part, answer.choices[0].message.content, await last()];""",
    )
    assert 0 < part < 1500
    assert "Rome" in text
    assert tokens <= 8


def test_a_signal_aborts(sdk: Page) -> None:
    error = run(
        sdk,
        f"""const controller = new AbortController();
        setTimeout(() => controller.abort(), 30);
        const long = {{ max_tokens: 1500, ignore_eos: true }}; // a busy page may be late
        return failure(engine.chat.completions.create(ask({STORY!r}, long), {{ signal: controller.signal }}));""",
    )
    assert error["code"] == error["top"] == "aborted"
    ended = run(
        sdk,
        f"""const controller = new AbortController();
        const {{ signal }} = controller;
        const stream = await engine.chat.completions.create(ask({STORY!r}, {{ stream: true, signal }}));
        let count = 0, after = 0;
        for await (const chunk of stream) {{
            if (controller.signal.aborted) after++;
            if (chunk.choices[0]?.delta?.content && ++count === 2) controller.abort();
        }}
        return [count, after];""",
    )
    assert ended == [2, 0]  # the loop ends by itself, as the openai client's does
    aborted = run(sdk, 'return failure(engine.chat.completions.create(ask("Hi"), { signal: AbortSignal.abort() }));')
    assert aborted["code"] == "aborted"
    answer = run(sdk, 'return engine.chat.completions.create(ask("What is the capital of Italy?"));')
    assert "Rome" in answer["choices"][0]["message"]["content"]


@pytest.mark.parametrize("stream", ["true", "false"])
def test_a_refused_request_rejects_with_its_code(sdk: Page, stream: str) -> None:
    error = run(sdk, f"return failure(engine.chat.completions.create({{ messages: [], stream: {stream} }}));")
    assert error["code"] == "empty_messages"
    assert error["type"] == "invalid_request_error"
    assert error["own"]
    assert error["name"] == "WispError"
    assert error["message"]


def test_uncloneable_options_are_refused(sdk: Page) -> None:
    error = run(sdk, "return failure(engine.chat.completions.create({ messages: [() => 1] }));")
    assert error["code"] == "invalid_type"


def test_text_and_tokens(sdk: Page) -> None:
    text = "Héllo 🚀 wörld"
    ids = run(sdk, f"return engine.tokenize({text!r});")
    assert len(ids) > 3
    assert run(sdk, f"return engine.detokenize({ids});") == text
    prompt = run(sdk, 'return engine.applyTemplate([{ role: "user", content: "Hi" }], { addGenerationPrompt: true });')
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


def test_logits_come_as_floats(sdk: Page) -> None:
    kind, length, shape = run(
        sdk,
        """const { logits, shape } = await engine.evaluate([1, 363, 201]);
        return [logits.constructor.name, logits.length, shape];""",
    )
    assert (kind, length) == ("Float32Array", shape[0] * shape[1])
    assert shape == [3, 4096]


def test_models_are_listed(sdk: Page) -> None:
    models = run(sdk, "return engine.models.list();")
    assert models["object"] == "list"
    assert "wisp-mini-q4_0" in [model["id"] for model in models["data"]]


def test_termination_rejects_open_requests_and_a_new_engine_boots(
    chromium: Callable[[str | None], Browser], server: Server
) -> None:
    context = new_profile(chromium("swiftshader"))
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    outcome = page.evaluate(
        """async () => {
            const { Wisp } = await import("/wisp.js");
            const stages = new Set();
            const first = await Wisp.create({ onProgress: ({ stage }) => stages.add(stage) });
            const open = first.load({}).then(() => "loaded", (error) => error.code);
            first.terminate();
            const after = await first.stats().catch((error) => error.code);
            const second = await Wisp.create();
            return [await open, after, second !== first, [...stages], (await second.models.list()).data.length > 0];
        }"""
    )
    assert outcome == ["aborted", "aborted", True, ["pyodide", "packages", "python"], True]
    context.close()
