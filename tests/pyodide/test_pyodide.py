"""Header, tokenizers and chat templates in real Pyodide: the same answers as under CPython, and fast enough there."""
# ruff: noqa: PT017 -- there is no pytest inside Pyodide

from typing import Any

import pytest
from pytest_pyodide import run_in_pyodide

LIMITS = {"read_header": 60, "load": 30, "encode": 30}  # loops of a million rounds


@run_in_pyodide
def measure(selenium_node: Any, vocabulary: str, limits: dict[str, float]) -> dict[str, float]:
    """Time to read a header, to make its tokenizer, and to encode 100 KB of mixed text.

    The first of three rounds after which each was within its limit once: on a busy machine, some take longer.
    The unit is a plain loop of a million rounds in the same Python, so a slow machine does not count.
    """
    import asyncio
    import json
    from pathlib import Path
    from time import perf_counter

    from py_engine.files.gguf_header import parse, read_header
    from py_engine.text.tokenizer import load_tokenizer

    golden = Path("/repo/tests/golden/vocab")
    data = (golden / f"ggml-vocab-{vocabulary}.gguf").read_bytes()
    cases = json.loads((golden / f"{vocabulary}.json").read_text())["encode"]
    text = "".join(c["text"] for c in cases if "text" in c)
    text *= 1 + 100_000 // len(text)
    while len(text.encode()) > 101_000:
        text = text[: len(text) * 100_500 // len(text.encode())]

    async def read(offset: int, length: int) -> bytes:
        return data[offset : offset + length]

    best: dict[str, float] = {}

    def note(name: str, began: float) -> None:
        best[name] = min(best.get(name, 1e9), perf_counter() - began)

    for _ in range(3):
        began = perf_counter()
        for i in range(1_000_000):
            _ = i + 1
        note("loop", began)
        header = parse(data, len(data))
        began = perf_counter()
        try:
            read_header(read, len(data)).send(None)
        except StopIteration as done:
            assert done.value.metadata == header.metadata
        note("read_header", began)
        began = perf_counter()
        tokenizer = load_tokenizer(header.metadata)
        note("load", began)
        began = perf_counter()
        ids = tokenizer.encode(text)
        note("encode", began)
        assert len(ids) > 10_000
        loops = {name: seconds / best["loop"] for name, seconds in best.items()}
        if all(loops[name] < limit for name, limit in limits.items()):
            break
    assert asyncio  # imported where coroutines live
    return loops


@pytest.mark.parametrize("vocabulary", ["qwen2", "llama-bpe", "llama-spm", "bert-bge"])
def test_headers_and_tokenizers_are_fast_enough(selenium_node: Any, vocabulary: str) -> None:
    loops = measure(selenium_node, vocabulary, LIMITS)
    print(vocabulary, {name: round(s, 3) for name, s in loops.items()})
    assert {name for name, limit in LIMITS.items() if loops[name] >= limit} == set()


@run_in_pyodide
def wrong_tokenizations(selenium_node: Any, vocabulary: str) -> list[str]:
    """The golden cases that come out differently."""
    import json
    from pathlib import Path

    from py_engine.files.gguf_header import parse
    from py_engine.text.tokenizer import load_tokenizer

    golden = Path("/repo/tests/golden/vocab")
    data = (golden / f"ggml-vocab-{vocabulary}.gguf").read_bytes()
    tokenizer = load_tokenizer(parse(data, len(data)).metadata)
    cases = json.loads((golden / f"{vocabulary}.json").read_text())
    encode = [c for c in cases["encode"] if "text" in c]
    assert len(encode) > 200
    wrong = [c["text"] for c in encode if tokenizer.encode(c["text"], c["add_special"], c["parse_special"]) != c["ids"]]
    return wrong + [c["text"] for c in cases["decode"] if tokenizer.decode(c["ids"]) != c["text"]]


@pytest.mark.parametrize("vocabulary", ["qwen2", "llama-bpe", "llama-spm", "bert-bge"])
def test_tokenizers_as_llama_cpp(selenium_node: Any, vocabulary: str) -> None:
    assert wrong_tokenizations(selenium_node, vocabulary) == []


@run_in_pyodide
def test_chat_templates_as_hugging_face(selenium_node: Any) -> None:
    import json
    from datetime import datetime
    from pathlib import Path

    from py_engine.errors import WispError
    from py_engine.text.chat_template import ChatTemplate

    seen = 0
    for path in Path("/repo/tests/golden/chat").glob("*.json"):
        golden = json.loads(path.read_text())
        now = datetime.fromisoformat(golden["now"])
        template = ChatTemplate(golden["template"], golden["bos_token"], golden["eos_token"], lambda now=now: now)
        for case in golden["cases"]:
            seen += 1
            options = {"tools": case["tools"], "add_generation_prompt": case["add_generation_prompt"]}
            try:
                text = template.render(case["messages"], **options, **case["kwargs"])
            except WispError as error:
                assert case["error"] in error.message
            else:
                assert text == case["expected"], (path.name, case["name"])
    assert seen > 40


@run_in_pyodide
def test_damaged_headers_raise_wisp_errors(selenium_node: Any) -> None:
    import random
    from pathlib import Path
    from time import perf_counter

    from py_engine.errors import CODES, WispError
    from py_engine.files.gguf_header import parse
    from py_engine.files.gguf_values import NeedMoreBytes

    def seconds(data: bytes, file_size: int | None) -> float:
        began = perf_counter()
        try:
            parse(data, file_size)
        except WispError as error:
            assert error.code in CODES
        except NeedMoreBytes as error:
            assert error.needed > len(data)
        return perf_counter() - began

    whole = Path("/repo/static/models/wisp-mini-q4_0.gguf").read_bytes()[:140_000]
    limit = 50 * min(seconds(whole, None) for _ in range(3))
    rng = random.Random(11)
    for i in range(600):
        data = bytearray(whole[: rng.randrange(len(whole))] if i % 2 else whole)
        for _ in range(3):
            if data:
                data[rng.randrange(min(len(data), 3000))] = rng.randrange(256)
        given = bytes(data), rng.choice([None, len(data), 6_000_000])
        assert seconds(*given) < limit or min(seconds(*given) for _ in range(3)) < limit  # a pause does not come twice


@run_in_pyodide
async def test_messages_cross_from_and_to_javascript(selenium_node: Any) -> None:
    import asyncio
    import json
    from pathlib import Path
    from types import SimpleNamespace

    import js
    from pyodide.code import run_js
    from pyodide.ffi import create_proxy

    posted = []
    post = create_proxy(lambda message: posted.append(json.loads(js.JSON.stringify(message))))
    js.globalThis.navigator = run_js("({ deviceMemory: 8 })")
    js.globalThis.location = run_js("({ origin: 'http://127.0.0.1' })")
    js.globalThis.JSON = run_js("JSON")
    js.globalThis.performance = run_js("({ now: () => 5 })")
    js.globalThis.BroadcastChannel = run_js("(class { postMessage() {} })")

    from app import main
    from app.models.catalog import Choice
    from app.models.loading import Options, vocabulary
    from py_engine.files.gguf_header import parse
    from py_engine.plan.sampling import Batch

    post_json = create_proxy(lambda text: posted.append(json.loads(text)))
    client = main.connect(run_js("(post) => ({ postMessage: post })")(post), post_json)

    async def ask(message: str) -> dict:
        posted.clear()
        await main.handle(client, run_js(f"({message})"))
        return posted[-1]

    error = (await ask("{id: 1, kind: 'chat.completions', request: {messages: []}}"))["error"]
    assert error == {
        "message": "messages is empty: give at least one message.",
        "type": "invalid_request_error",
        "param": "messages",
        "code": "empty_messages",
    }
    assert (await ask("{id: 2, kind: 'stats'}"))["result"]["model"] is None
    error = (await ask("{id: 3, kind: 'chat.completions', request: {seed: 5n}}"))["error"]
    assert error["code"] == "invalid_type"
    for depth in (101, 3000, 30_000):  # the deepest exceeds what JSON.stringify can do, too
        deep = f"JSON.parse('['.repeat({depth}) + ']'.repeat({depth}))"
        error = (await ask(f"{{id: 3, kind: 'chat.completions', request: {{seed: {deep}}}}}"))["error"]
        assert error["code"] in ("invalid_value", "invalid_type"), error
    many = "JSON.parse('[' + '[],'.repeat(3e6) + '0]')"
    error = (await ask(f"{{id: 3, kind: 'chat.completions', request: {{messages: {many}}}}}"))["error"]
    assert (error["code"], "160 MB" in error["message"]) == ("invalid_value", True), error
    error = (await ask("{id: 3, kind: 'detokenize', ids: new Uint8Array(1e8)}"))["error"]
    assert (error["code"], "16 MiB" in error["message"]) == ("invalid_value", True), error
    assert (await ask("{id: 4, kind: 'tokenize', text: 'x'}"))["error"]["param"] is None

    class Engine:
        context_length = usual_tokens = 100
        backend = "cpu"
        notices: list = []  # noqa: RUF012
        parallel = 2
        embeddings = SimpleNamespace(preferred=False)

        def stats(self) -> dict:
            return {}

        async def generate(self, request: object, stats: object = None):
            for i in model.tokenizer.encode("Héllo 🦩"):
                await asyncio.sleep(0)
                yield Batch([i])
            yield Batch([2])

    data = Path("/repo/static/models/wisp-mini-q4_0.gguf").read_bytes()  # noqa: ASYNC240
    model = vocabulary("mini", parse(data, len(data)), {})
    model.header.metadata["llama.x"] = float("nan")  # which JSON cannot express
    model.engine = Engine()
    model.options = Options(Choice("mini", ()))
    main._worker._models.loaded["mini"], main._worker._models.default = model, "mini"
    assert (await ask("{id: 5, kind: 'ollama.show', request: {}}"))["result"]["model_info"]["llama.x"] is None
    ids = (await ask("{id: 5, kind: 'tokenize', text: 'a\\ud83d é', addSpecial: undefined, parseSpecial: null}"))[
        "result"
    ]
    assert ids == model.tokenizer.encode("a\ufffd é")
    assert (await ask(f"{{id: 6, kind: 'detokenize', ids: new Int32Array({ids})}}"))["result"] == "a\ufffd é"
    request = "{messages: [{role: 'user', content: 'Hi', name: null}], stream: true, seed: null, stop: undefined}"
    await ask(f"{{id: 7, kind: 'chat.completions', request: {request}}}")
    assert posted[-1] == {"id": 7, "kind": "done"}
    choices = [chunk["choices"][0] for m in posted[:-1] for chunk in m["chunks"]]
    assert "".join(c["delta"].get("content", "") for c in choices) == "Héllo 🦩"
    assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["stop"]
    assert (await ask("{id: 8, kind: 'stats'}"))["result"]["memory"]["wasm_heap"] > 1_000_000
    post.destroy()
