"""The wheel in Pyodide without Wisp's page: on a plain page's main thread and in a worker, from a plain server."""

import base64
import hashlib
import json
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from playwright.sync_api import Browser

from tests.support.bare_pyodide import MODEL, PYTHON_EXAMPLES, Python, Site
from tests.support.tolerances import assert_close
from tools.goldens import GOLDEN
from tools.paths import STATIC
from tools.wheel import wheel

PICTURES = GOLDEN / "sees"
SEES = [STATIC / "models" / name for name in ("wisp-mini-sees-q4_0.gguf", "mmproj-wisp-mini-sees-q8_0.gguf")]
PLAMO = GOLDEN / "plamo" / "plamo.F16.gguf"
LISTS = {"word_lists/__init__.py": b"ANIMALS = ('cat', 'dog', 'fox')\n"}
RULES = b"""import numpy as np
import word_lists

def starts_with(engine, kind):
    words = getattr(word_lists, kind.upper())
    texts = [engine.detokenize([token]).strip().lower() for token in range(len(engine.tokenizer))]
    return np.array([text in words for text in texts])
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("site"), PLAMO) as made:
        yield made


@pytest.fixture(scope="module")
def python(site: Site, chromium: Callable[[str | None], Browser]) -> Iterator[Python]:
    """A Python on a page's main thread, without WebGPU. The first example's names are in its module `shared`."""
    made = Python(chromium(None), site)
    assert "Paris" in made.run_example(PYTHON_EXAMPLES[0])
    yield made
    made.page.context.close()


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
        slow='root ::= "[" x{1,300} root? "]"\nx ::= "b" | y\ny ::= "c"? [^a]',
    )
    assert found[0][0] in "(0123456789"
    assert "takes this device too long" in found[1]
    assert [url[:5] for url in workers] == ["blob:"] * 2


def test_a_logits_processor_forbids_a_letter(python: Python) -> None:
    text = python.example("without_e")
    assert len(text) > 20
    assert "e" not in text.lower()


def test_a_processor_for_the_gpu_has_an_equivalent_on_the_cpu(python: Python) -> None:
    """Without one, it is an error; so is a table that no vocabulary has."""
    text = python.example("WgslProcessor")
    assert len(text) > 20
    assert "e" not in text.lower()
    codes = python.run(
        """
from shared import engine
from wisp import WgslProcessor, WispError
result = []
async def refused(source, values=None, **more):
    try:
        await engine.chat("Hi", logits_processor=WgslProcessor(source, values, **more)).text()
    except WispError as error:
        result.append([error.code, error.param, error.message])
await refused("fn process(token: u32, logit: f32) -> f32 { return logit; }")
await refused("fn process(token: u32, logit: f32) -> f32 { return logit; }", table=[0.0] * 100000)
await refused("fn process(token: u32, logit: f32) -> f32 { return logit; }", table="abc")"""
    )
    assert {param for _, param, _ in codes} == {"logits_processor"}
    assert [code for code, _, _ in codes] == ["unsupported_parameter", "invalid_value", "invalid_value"]
    assert "Python" in codes[0][2]


def test_a_logits_processor_within_a_grammar(python: Python) -> None:
    """The processor prefers what the grammar forbids, and then one of the texts that it allows."""
    text, steps = python.run(
        """
from shared import engine
lengths = []
def prefer(ids, logits):
    lengths.append(len(ids))
    for text, more in (("Berlin", 50), ("Rome", 30)):
        logits[engine.tokenize(text)[0]] = 30 + more
text = await engine.chat("Which city?", regex="Paris|Rome", logits_processor=prefer, temperature=0).text()
result = [text, [b - a for a, b in zip(lengths, lengths[1:])]]"""
    )
    assert text == "Rome"
    assert set(steps) <= {1}


def test_a_logits_processor_that_changes_nothing_changes_nothing(python: Python) -> None:
    plain, processed = python.run(
        """
from shared import engine
ask = lambda **more: engine.chat("Tell me about the sea.", seed=5, temperature=0.8, max_tokens=24, **more).text()
result = [await ask(), await ask(logits_processor=lambda ids, logits: logits.astype("float64"))]"""
    )
    assert len(plain) > 10
    assert plain == processed


def test_a_custom_sampler(python: Python) -> None:
    assert len(python.example("top_n_sigma")) > 5


def test_packages_of_hooks(python: Python) -> None:
    """Wheels in the file system, where one requires the other; a File; errors say what is missing."""
    wheels = {
        "word_rules-2.1-py3-none-any.whl": wheel("word_rules", "2.1", {"word_rules.py": RULES}, {}, ("word-lists>=1",)),
        "word_lists-1.0-py3-none-any.whl": wheel("word_lists", "1.0", LISTS, {}),
        "lonely-1.0-py3-none-any.whl": wheel("lonely", "1.0", {"lonely.py": b""}, {}, ("not-to-be-found",)),
        "dropped_in-1.0-py3-none-any.whl": wheel("dropped_in", "1.0", {"dropped_in.py": b"X = 5"}, {}),
    }
    messages = python.run(
        """
import base64, js, wisp
from pathlib import Path
from pyodide.ffi import to_js
for name, data in wheels.items():
    Path(name).write_bytes(base64.b64decode(data))
messages, end = [], "-py3-none-any.whl"
for wrong in ("word_rules-2.1" + end, "lonely-1.0" + end, "surely-no-package", "x.whl", "a-1" + end):
    try:
        await wisp.install(wrong)
    except wisp.WispError as error:
        messages.append(error.message)
dropped = "dropped_in-1.0-py3-none-any.whl"
await wisp.install(js.File.new(to_js([Path(dropped).read_bytes()]), dropped))
import dropped_in
result = [messages, dropped_in.X]""",
        wheels={name: base64.b64encode(data).decode() for name, data in wheels.items()},
    )
    assert python.example("wisp.install").split()[0].lower().strip(".,") in ("cat", "dog", "fox")
    (rules, lonely, unknown, no_name, no_file), dropped = messages
    assert "word-lists" in rules
    assert "not-to-be-found" in lonely
    assert all("pypi=True" in message for message in (rules, lonely, unknown))
    assert "no name of a wheel" in no_name
    assert "There is no file" in no_file
    assert dropped == 5


def test_packages_of_an_index(python: Python, site: Site) -> None:
    """An index gives a package and what it requires, and what it has given installs again offline."""
    wheels = {
        "needing": wheel("needing", "1.2", {"needing.py": b"import needed\nX = needed.X + 1"}, {}, ("needed>=2",)),
        "needed": wheel("needed", "2.0", {"needed.py": b"X = 5"}, {}),
        "torn": wheel("torn", "1.0", {"torn.py": b""}, {}),
    }
    for name, data in wheels.items():
        file = f"{name}-{'1.2' if name == 'needing' else '2.0'}-py3-none-any.whl"
        site.add(f"files/{file}", data)
        digest = "0" * 64 if name == "torn" else hashlib.sha256(data).hexdigest()
        site.add(f"index/{name}/index.html", f'<a href="/files/{file}#sha256={digest}">{file}</a>'.encode())
    first = """
import sys, micropip, wisp
async def install(name, *urls):
    try:
        await wisp.install(name, index_urls=urls)
    except wisp.WispError as error:
        return error.message
async def value():
    failed = await install("needing", index)
    if failed:
        return failed
    import needing
    return needing.X
def forget():
    micropip.uninstall(["needing", "needed"])
    for name in ("needing", "needed"):
        sys.modules.pop(name, None)
"""
    nowhere = "http://127.0.0.1:1/simple"  # Chromium refuses this port
    index = f"{site.url}index"
    online = python.run(
        f"{first}result = [await value(), forget(), await install('surely-none', index), await install('torn', index),"
        " await install('surely-none', nowhere), await install('torn', nowhere, index),"
        " await install('surely-none', nowhere, index)]",
        index=index,
        nowhere=nowhere,
    )
    python.page.context.set_offline(True)
    try:
        offline = python.run(f"{first}result = [await value(), forget(), await install('torn2', index)]", index=index)
    finally:
        python.page.context.set_offline(False)
    assert online[0] == 6
    assert "No index has surely-none" in online[2]
    assert "cannot be installed" in online[3]
    assert f"{nowhere}/surely-none/ cannot be reached" in online[4]
    assert "cannot be installed" in online[5]  # the second index gave the wheel, whose hash is wrong
    assert f"{nowhere}/surely-none/ cannot be reached" in online[6]
    assert offline[0] == 6
    assert f"{index}/torn2/ cannot be reached" in offline[2]


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


def test_a_stopping_rule_and_a_callback(python: Python) -> None:
    assert python.example("stop_when").split() == ["8", "stop"]


def test_the_tokenizer_and_the_template_can_be_replaced(python: Python) -> None:
    assert python.example("unicodedata") == "user: Hello\nassistant:\n"


def test_an_architecture_from_user_code(python: Python) -> None:
    (source,) = (one for one in PYTHON_EXAMPLES if "import register_architecture" in one)
    assert len(source.splitlines()) <= 40
    assert python.example("import register_architecture") == "(3, 304)\n"
    golden = np.load(PLAMO.with_suffix(".npz"))
    ids = golden["prompt"].tolist()
    logits, greedy = python.run(
        """
from shared import Engine, plamo
async with await Engine.load("plamo.F16.gguf", kv_type="f32") as exact:
    logits = (await exact.evaluate(ids)).tolist()
    greedy = []
    answer = exact.complete(ids, temperature=0, max_tokens=9, stop_when=lambda ids, _: greedy.append(ids[-1]))
    await answer.text()
result = [logits, greedy]""",
        ids=ids,
    )
    assert_close(golden["logits_ref"], np.array(logits, np.float32), "f32")
    assert greedy[:8] == golden["greedy"].tolist()[:8]


def test_a_kernel_from_user_code(python: Python) -> None:
    """The architecture with a kernel of the caller's has llama.cpp's logits, too."""
    python.example("import register_architecture")
    assert python.example("import register_kernel") == "(3, 304)\n"
    golden = np.load(PLAMO.with_suffix(".npz"))
    logits, used, refused = python.run(
        """
from shared import Engine, SWIGLU, swiglu
from wisp import WispError, register_kernel
async with await Engine.load("plamo.F16.gguf", kv_type="f32") as exact:
    logits = (await exact.evaluate(ids)).tolist()
    used = {op.kernel for ops in exact._model.engine_or_error().plan.lists.values() for op in ops}
refused = []
for name in ("norm", "My kernel"):
    try:
        register_kernel(name, SWIGLU, swiglu)
    except WispError as error:
        refused.append(error.code)
result = [logits, "my_swiglu" in used, refused]""",
        ids=golden["prompt"].tolist(),
    )
    assert_close(golden["logits_ref"], np.array(logits, np.float32), "f32")
    assert used
    assert refused == ["invalid_value", "invalid_value"]


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
        ["aborted", None],
        "A logits processor",
        True,
        True,
    ]
