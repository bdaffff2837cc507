"""Architectures and kernels from the caller's code."""

import numpy as np

from tests.support.bare_pyodide import PLAMO, PYTHON_EXAMPLES, Python
from tests.support.tolerances import assert_close


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
