"""The wheel in a worker's Pyodide, with the engine on WebGPU: functions of Python and of WGSL change its logits."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser

from tests.support.bare_pyodide import PLAMO, PYTHON_EXAMPLES, Python, Site
from tests.support.tolerances import assert_close
from tools.goldens import GOLDEN

LLAMA = GOLDEN / "llama" / "llama.F16.gguf"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory, chromium: Callable[[str | None], Browser]) -> Iterator[Python]:
    """A Python in a worker, with WebGPU. What a test's code names is its own."""
    with Site(tmp_path_factory.mktemp("site"), LLAMA, PLAMO) as site:
        made = Python(chromium("lavapipe"), site, worker=True)
        yield made
        made.page.context.close()


def test_webgpu_in_a_worker(python: Python) -> None:
    """A processor reads the GPU's logits, which are llama.cpp's, and what it writes is sampled."""
    golden: Any = np.load(LLAMA.with_suffix(".npz"))
    backend, logits, sampled = python.run(
        f"""
from wisp import Engine
seen, last = [], []
def only(ids, logits):
    seen.append(logits.tolist())
    last.append(ids[-1])
    logits[:] = float("-inf")
    logits[40 + len(seen)] = 0
how = {{"backend": "webgpu", "context_length": 256, "kv_type": "f32", "tune": False}}
async with await Engine.load("{LLAMA.name}", **how) as engine:
    await engine.complete(ids, max_tokens=4, logits_processor=only, ignore_eos=True).text()
    backend = engine.backend
result = [backend, seen[0], last[1:]]""",
        ids=golden["prompt"].tolist(),
    )
    assert backend == "webgpu"
    assert_close(golden["logits_ref"][-1:], np.array([logits], np.float32), "f16")
    assert sampled == [41, 42, 43]


def test_a_kernel_from_user_code(python: Python) -> None:
    """The docs' kernel runs on the GPU; one that differs from its numpy twin is found before the first token."""
    golden: Any = np.load(PLAMO.with_suffix(".npz"))
    architecture, kernel = (
        next(one for one in PYTHON_EXAMPLES if name in one).rsplit("\n", 3)[0]
        for name in ("import register_architecture", "import register_kernel")
    )
    backend, logits, proof, wrong, unknown, mended = python.run(
        f"""
from wisp import Engine, WispError
{architecture}
{kernel}
how = {{"backend": "webgpu", "context_length": 256, "kv_type": "f32", "tune": False, "prove": True}}
async with await Engine.load("{PLAMO.name}", **how) as engine:
    backend, logits, proof = engine.backend, (await engine.evaluate(ids)).tolist(), engine.stats()["proof"]
async def error_of(text, compute=swiglu):
    register_kernel("my_swiglu", text, compute)
    try:
        async with await Engine.load("{PLAMO.name}", **how) as engine:
            return [engine.backend]
    except WispError as error:
        return [error.code, error.message]
wrong = await error_of(SWIGLU.replace("1 + exp", "2 + exp"))
unknown = await error_of(SWIGLU.replace("1 + exp", "1 + missing"))
mended = [await error_of(SWIGLU, lambda call: None), await error_of(SWIGLU)]
result = [backend, logits, proof, wrong, unknown, [mended[0][0], *mended[1]]]""",
        ids=golden["prompt"].tolist(),
    )
    assert backend == "webgpu"
    assert_close(golden["logits_ref"], np.array(logits, np.float32), "f16")
    assert proof["checked"] > 10
    assert (proof["wrong"], proof["skipped"]) == ({}, [])
    assert wrong[0] == "wrong_results"
    assert "my_swiglu" in wrong[1]
    assert mended == ["wrong_results", "webgpu"]  # findings are of one load: the numpy function may change
    assert unknown[0] == "internal_error"
    assert "'missing', in 'y[id.y" in unknown[1]


ON_GPU = """
import asyncio
import numpy as np
from wisp import Engine, WgslProcessor, WispError
from wisp.py_engine.gpu import processors
how = {"backend": "webgpu", "context_length": 256, "kv_type": "f32", "tune": False, "prompt_embeddings": True}
engine = await Engine.load(model, **how)
async def sampled(source=None, values=None, count=6, prompt=ids, **more):
    found = []
    def stop(ids, text):
        found[:] = ids
        return False
    if source is not None:
        given = table if "table_at" in source else None
        more["logits_processor"] = WgslProcessor("fn process(token: u32, logit: f32" + source, values, table=given)
    await engine.generate(prompt, max_tokens=count, stop_when=stop, ignore_eos=True, **more).text()
    return found
count_up = ", first: u32) -> f32 { return select(-1e38, logit, token == first + answer_count()); }"
after = ") -> f32 { return select(logit, 500.0, token == token_at(token_count() - 1u) + 1u); }"
shift = ", by: f32) -> f32 { return logit + by * table_at(token); }"
table = [float((7 * i) % 11) for i in range(304)]
def shifted(ids, logits):
    logits += 0.5 * np.array(table, np.float32)
warm = {"temperature": 0.8, "top_k": 20, "seed": 3}
"""


def test_processors_on_the_gpu(python: Python) -> None:
    """They sample what the same in Python does, alone and side by side, before biases; errors have lines."""
    golden: Any = np.load(LLAMA.with_suffix(".npz"))
    ids = golden["prompt"].tolist()
    code = """
counted = await sampled(count_up, {"first": 41})
following = await sampled(after, temperature=0)
alone = [await sampled(**warm), await sampled(shift, {"by": 0.5}, **warm)]
in_python = await sampled(logits_processor=shifted, **warm)
several = (None, None), (shift, {"by": 0.5}), (count_up, {"first": 60}), (shift, {"by": 0})
both = await asyncio.gather(*(sampled(*one, **warm) for one in several))
biased = await sampled(count_up, {"first": 90}, logit_bias={"30": 40, "31": 39}, temperature=0)
errors = []
wrong = [") -> f32 {\\n  return logit + token;\\n}", ") -> f32 { return missing(token); }"]
wrong.append(") -> f32 { many[token].x = logit; return many[0].y; } var<workgroup> many: array<vec4f, 60000>;")
for source in wrong:
    try:
        await sampled(source)
    except WispError as error:
        errors.append([error.code, error.message])
again = await sampled(**warm)
processors.MAX_PROCESSORS = 4
lists = engine._model.engine_or_error().plan.lists
for by in "23":
    await sampled(shift.replace("by *", by + " * by *"), {"by": 0})
places = [len([name for name in lists if name.startswith("process.")]), await sampled(after, temperature=0)]
rows = await engine.token_embeddings(ids)
again = [again, await sampled(prompt=rows, **warm)]
ruled = dict(warm, regex="[a-m ]{8,40}")
within = [await sampled(shift, {"by": 0.5}, **ruled), await sampled(logits_processor=shifted, **ruled)]
letters = engine.detokenize(within[0])
result = [places, engine.backend, counted, following, alone, in_python, both, biased, errors, again, within, letters]"""
    got = python.run(ON_GPU + code, ids=ids, model=LLAMA.name)
    places, backend, counted, following, alone, in_python, both, biased, errors, again, within, letters = got
    assert backend == "webgpu"
    assert counted == [41, 42, 43, 44, 45, 46]
    assert following == [ids[-1] + i for i in range(1, 7)]
    assert alone[1] == in_python != alone[0]
    assert places == [8, following]  # two lists of each function; the one that made room comes back
    assert again == [alone[0], alone[0]]  # the second: from the rows of the tokens
    assert both == [alone[0], alone[1], [60, 61, 62, 63, 64, 65], alone[0]]
    assert biased == [90, 91, 92, 93, 94, 95]
    assert [code for code, _ in errors] == ["invalid_value"] * 3
    assert "line 2" in errors[0][1]
    assert "missing" in errors[1][1]
    assert "workgroup storage" in errors[2][1]
    assert not set("\n{") & set(errors[2][1])  # no text of a kernel
    assert within[0] == within[1]
    assert len(letters) > 5
    assert set(letters) <= set("abcdefghijklm ")
