"""WebGPU in Firefox, whose compiler of WGSL is another one than Chromium's: on lavapipe, which has shader-f16."""

from collections.abc import Iterator

import pytest

from py_engine.plan.kernels import Device
from tests.support.firefox import Firefox, running_firefox
from tools.selection import everything
from tools.serve import Server
from tools.shader_choice import chosen, texts
from tools.shaders import Setup, expanded

LIKE_A_GPU = Device(
    f16=True, half_bits=False, max_workgroup_storage=32768, max_threads=1024, max_storage_buffers=16, dot8=True
)  # fmt: skip
SETUPS = (Setup(LIKE_A_GPU, 512, "f16"),)
COMPILE = """async (shaders) => {
  const adapter = await navigator.gpu.requestAdapter();
  globalThis.device ??= await adapter.requestDevice({ requiredFeatures: ["shader-f16"] });
  const wrong = [];
  for (const { label, code } of shaders) {
    const { messages } = await device.createShaderModule({ code }).getCompilationInfo();
    for (const { type, message } of messages) if (type === "error") wrong.push(`${label}: ${message}`);
  }
  return wrong;
}"""
ANSWER = """async (options) => {
  const engine = await (await import("/wisp.js")).Wisp.create();
  const { id } = await engine.load({ model: "wisp-mini-q4_0", backend: "webgpu", tune: false, ...options });
  const messages = [{ role: "user", content: "What is the capital of Italy?" }];
  const answer = await engine.chat.completions.create({ messages, temperature: 0, max_tokens: 20 });
  const { kernels, notices } = await engine.stats();
  await engine.unload(id);
  return { text: answer.choices[0].message.content, device: kernels.device, notices };
}"""
BATCH = 200


@pytest.fixture(scope="module")
def firefox() -> Iterator[Firefox]:
    with running_firefox(webgpu=True) as running:
        yield running


@pytest.mark.slow
def test_all_kernels_compile(firefox: Firefox, server: Server) -> None:
    """Each text, whatever its numbers; WISP_ALL=1: each number of a param, too, as test_style.py has Dawn validate."""
    tab = firefox.tab()
    tab.open(f"{server.url}notices.html")
    select = chosen if everything() else texts
    shaders = [{"label": shader.label, "code": shader.code} for shader in select(expanded([], SETUPS))]
    assert len(shaders) > 500
    wrong = [fault for i in range(0, len(shaders), BATCH) for fault in tab.evaluate(COMPILE, shaders[i : i + BATCH])]
    assert not wrong, [w[:60] for w in wrong]


def test_a_model_answers(firefox: Firefox, server: Server) -> None:
    tab = firefox.tab()
    tab.open(f"{server.url}notices.html")
    found = tab.evaluate(ANSWER, {"prove": False})
    assert "Rome" in found["text"]
    assert (found["device"]["f16"], found["notices"]) == (True, [])
    # Firefox, if it were not known what its compiler lacks: the kernels that it refuses are replaced
    found = tab.evaluate(ANSWER, {"prove": True, "variant": {"half_bits": True}})
    assert "Rome" in found["text"]
    assert found["device"]["f16"] is False
    (notice,) = found["notices"]
    assert " does not work on this GPU (it does not compile: " in notice
