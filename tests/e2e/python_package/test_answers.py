"""The wheel in Pyodide without Wisp's page, from a plain server: answers, tokens, embeddings, pictures and errors."""

import base64
import json

import pytest

from tests.support.bare_pyodide import MODEL, Python, Site
from tools.goldens import GOLDEN
from tools.paths import STATIC

PICTURES = GOLDEN / "sees"
SEES = [STATIC / "models" / name for name in ("wisp-mini-sees-q4_0.gguf", "mmproj-wisp-mini-sees-q8_0.gguf")]


def test_an_answer_on_the_main_thread(python: Python) -> None:
    text, reason, tokens = python.example("answer.finish_reason, answer.usage").rsplit(maxsplit=2)
    assert (text.lower().strip("."), reason) == ("cold", "stop")
    assert 0 < int(tokens) < 5


def test_streams_pieces_and_reports_progress(python: Python) -> None:
    stages, pieces, message, reason, usage, backend = python.run(
        f"""
from shared import Engine
stages = set()
async with await Engine.load("{MODEL.name}", on_progress=lambda stage, *_: stages.add(stage)) as engine:
    answer = engine.chat("What is the capital of France?", temperature=0)
    pieces = [text async for text in answer]
    result = [sorted(stages), pieces, answer.message, answer.finish_reason, answer.usage, engine.backend]"""
    )
    assert "upload" in stages
    assert len(pieces) > 2
    assert message["content"] == "".join(pieces)
    assert (reason, backend) == ("stop", "cpu")
    assert usage["completion_tokens"] >= len(pieces)


def test_a_loop_over_an_answer_may_await_whatever_else(python: Python) -> None:
    """Also more answers than run side by side, from the task itself and from others."""
    alone, inside, same, vector = python.run(
        """
import asyncio
from shared import engine
options = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
alone = await engine.complete("one", **options).text()
vector = (await engine.embed("two")).tolist()
pieces, inside = [], []
async with asyncio.timeout(120):
    async for text in engine.complete("one", **options):
        pieces.append(text)
        if len(pieces) == 1:
            inside += [(await engine.embed("two")).tolist()]
            inside += [await engine.complete("one", **options).text()]
            inside += await asyncio.gather(*(engine.complete("one", **options).text() for _ in range(6)))
            inside += [(await asyncio.create_task(engine.embed("two"))).tolist()]
            inside += [len(await asyncio.create_task(engine.evaluate([1, 2, 3])))]
result = [alone, inside, "".join(pieces), vector]"""
    )
    assert inside == [vector, *[alone] * 7, vector, 3]
    assert same == alone


def test_held_streams_of_the_engine_keep_nobody_waiting(python: Python) -> None:
    """What py_engine yields, begun and not read on: nine streams, where four sequences run at once."""
    before, found, counts = python.run(
        """
import asyncio
from contextlib import AsyncExitStack, aclosing
from shared import engine
from wisp.py_engine.generate.answer import AnswerLimits, GenerationRequest
from wisp.py_engine.plan.sampling import Sampling
asked = GenerationRequest([1, 2, 3], Sampling(temperature=0), AnswerLimits(12, frozenset()))
before = (await engine.embed("two")).tolist()
streams = [engine._model.engine.generate(asked) for _ in range(9)]
async with asyncio.timeout(120), AsyncExitStack() as stack:
    for stream in streams:
        await stack.enter_async_context(aclosing(stream))
        await anext(stream)
    found = (await asyncio.create_task(engine.embed("two"))).tolist()
    counts = [sum([len(batch.ids) async for batch in stream]) for stream in streams]
result = [before, found, counts]"""
    )
    assert found == before
    assert len(counts) == 9
    assert max(counts) <= 12


def test_a_schema_holds(python: Python) -> None:
    assert python.example("json_schema").replace(" ", "") == '{"city":"Rome"}\n'


def test_a_grammar_that_may_be_slow_is_tried_in_a_worker(python: Python) -> None:
    workers: list[str] = []
    python.page.on("worker", lambda worker: workers.append(worker.url))
    found = python.run(
        """
from shared import engine
from wisp import WispError
result = []
for grammar in (quick, slow):
    try:
        result.append(await engine.chat("1 + 1", grammar=grammar, max_tokens=4).text())
    except WispError as error:
        result.append(error.message)""",
        quick='root ::= e\ne ::= e "+" e | "(" e ")" | [0-9]',
        slow=r"root ::= ([ -~]{2,9}){1,300}",  # takes twenty times as long as a trial may
    )
    assert found[0][0] in "(0123456789"
    assert "takes this device too long" in found[1]
    assert [url[:5] for url in workers] == ["blob:"] * 2


def test_embeddings_in_place_of_tokens(python: Python) -> None:
    """Rows of tokens give what the tokens give, and equal rows are not computed again; wrong ones are errors."""
    first, second = python.example("token_embeddings").splitlines()
    assert "Rome" in first
    assert "Rome" in second
    same, cached, codes = python.run(
        """
import numpy as np
from shared import Engine, engine
from wisp import WispError
async with await Engine.load("wisp-mini-q4_0.gguf", prompt_embeddings=True) as reader:
    ids = reader.tokenize("Once upon a time there was a cat that lived in a house by the sea")
    rows = await reader.token_embeddings(ids)
    warm = dict(temperature=0.7, seed=4, max_tokens=16)
    texts = [await reader.complete(ids, **warm).text(), await reader.generate(embeddings=rows, **warm).text()]
    again = reader.generate([ids[:5], rows[5:12], ids[12:]], **warm)
    texts.append(await again.text())
    repeated = reader.generate(embeddings=rows, max_tokens=1)
    await repeated.text()
    codes = []
    for model, wrong in ((reader, rows[:, :8]), (reader, rows * np.nan), (reader, rows[0]), (engine, rows)):
        try:
            await model.generate(embeddings=wrong).text()
        except WispError as error:
            codes.append([error.code, error.param])
result = [texts, repeated.usage["prompt_tokens_details"]["cached_tokens"] / len(ids), codes]"""
    )
    assert same[0] == same[1] == same[2]
    assert cached > 0.8
    assert codes == [["invalid_value", "embeddings"]] * 3 + [["unsupported_parameter", "embeddings"]]


def test_complete_embed_and_tokens(python: Python) -> None:
    ids, text, completed, shape, lengths = python.run(
        """
import numpy as np
from shared import engine
ids = engine.tokenize("Hello world")
completed = await engine.complete("The sky is", max_tokens=4, temperature=0).text()
rows = await engine.embed(["a cat", "a dog"])
result = [ids, engine.detokenize(ids), completed, rows.shape, np.linalg.norm(rows, axis=1).tolist()]"""
    )
    assert len(ids) == 2
    assert text == "Hello world"
    assert completed
    assert shape[0] == 2
    assert lengths == pytest.approx([1, 1], abs=1e-4)


def test_a_picture(python: Python, site: Site) -> None:
    """With a projector, and the picture as a data URL, in OpenAI's shape."""
    for path in SEES:
        site.add(path.name, path.read_bytes())
    probe = json.loads((PICTURES / "probes.json").read_text(encoding="utf-8"))[0]
    question, wanted = probe["turns"][0]
    url = "data:image/png;base64," + base64.b64encode((PICTURES / probe["picture"]).read_bytes()).decode()
    parts = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": question}]
    code = f"""
from shared import Engine
async with await Engine.load("{SEES[0].name}", projector="{SEES[1].name}", context_length=1024) as seeing:
    result = await seeing.chat(messages, temperature=0, max_tokens=60).text()"""
    assert python.run(code, messages=[{"role": "user", "content": parts}]) == wanted


def test_errors_and_aborts(python: Python) -> None:
    codes = python.run(
        """
from shared import Engine, engine
from wisp import WispError
result = []
async def code_of(work):
    try:
        await work
    except WispError as error:
        result.append([error.code, error.param])
await code_of(Engine.load("wisp-mini-q4_0.gguf", context_length=0))
await code_of(Engine.load("nothing.gguf"))
async def ask_with_deep_tools():
    schema = {}
    for _ in range(200):  # Python itself ends in WebAssembly where it frees thousands
        schema = {"properties": {"a": schema}}
    function = {"name": "f", "parameters": schema}
    await engine.chat("Hi", tools=[{"type": "function", "function": function}], tool_choice="none").text()
await code_of(ask_with_deep_tools())
answer = engine.chat("Count to a hundred.", max_tokens=400)
async def read():
    async for text in answer:
        answer.abort()
await code_of(read())
def broken(ids, logits):
    return logits[:3]
try:
    await engine.chat("Hi", logits_processor=broken).text()
except ValueError as error:
    result.append(str(error)[:18])
left = engine.chat("Count to a hundred.", max_tokens=400)
async for text in left:
    break
del text
import asyncio, gc
gc.collect()
while not left._job.aborted:
    await asyncio.sleep(0.01)
result.append(left._job.aborted)
result.append(await engine.chat("Say hi.", max_tokens=3, temperature=0).text() != "")"""
    )
    assert codes == [
        ["invalid_value", "context_length"],
        ["http_error", None],
        ["invalid_value", None],
        ["aborted", None],
        "A logits processor",
        True,
        True,
    ]
