"""The SDK switches between models of different kinds, in each order of pairs, on the CPU."""

from typing import Any

from playwright.sync_api import BrowserContext

from tools.serve import Server

MODELS: list[dict[str, Any]] = [
    {"name": "wisp-mini-q4_0", "model": "wisp-mini-q4_0"},
    {"name": "no template", "model": "/repo/tests/golden/llama/llama.F16.gguf"},
    {"name": "small context", "model": "/repo/tests/golden/qwen/qwen3.F16.gguf", "contextLength": 24},
    {"name": "other tokenizer", "model": "/repo/tests/golden/gemma/gemma3.F16.gguf", "kvType": "q8_0", "parallel": 1},
    {"name": "embedding", "model": "/repo/tests/golden/embedding/bert.F16.gguf"},
]
SWITCH = """async (models) => {
    const { Wisp } = await import("/wisp.js");
    const engine = await Wisp.create();
    const codeOf = (promise) => promise.then(() => "answered", (error) => error.error?.code ?? `${error}`);
    const schema = { type: "object", properties: { a: { type: "integer" } }, required: ["a"] };
    const response_format = { type: "json_schema", json_schema: { name: "answer", schema } };
    const messages = [{ role: "user", content: "a" }];
    const ask = {
        text: (model) => codeOf(engine.completions.create({ model, prompt: "The", max_tokens: 2, top_k: 5 })),
        json: (model) => codeOf(engine.chat.completions.create({ model, messages, max_tokens: 2, response_format })),
        vector: (model) => codeOf(engine.embeddings.create({ model, input: "The" })),
    };
    const all = async ({ name: model }) => Object.fromEntries(
        await Promise.all(Object.entries(ask).map(async ([name, send]) => [name, await send(model)])));
    const found = [];
    for (const first of models)
        for (const second of models.filter((model) => model !== first)) {
            await engine.load({ backend: "cpu", ...first });
            const before = all(first); // still running at the switch
            await engine.load({ backend: "cpu", ...second });
            found.push([first.name, await before, second.name, await all(second)]);
        }
    return found;
}"""


def test_every_pair_of_models_in_both_orders(context: BrowserContext, server: Server) -> None:
    page = context.new_page()
    page.goto(f"{server.url}tests/blank.html")
    found = page.evaluate(SWITCH, MODELS)
    assert len(found) == len(MODELS) * (len(MODELS) - 1)
    for first, before, second, after in found:
        for name, codes in ((first, before), (second, after)):
            assert codes["vector" if name == "embedding" else "text"] == "answered", (first, second, codes)
            allowed = {"answered", "unsupported_parameter", "context_length_exceeded"}
            assert set(codes.values()) <= allowed, (first, second, codes)
