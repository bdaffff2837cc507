"""How many workgroups replay.js dispatches over the positions of a context. In Node, with a device that notes them."""

import pytest

from tests.support.js_modules import Evaluate, evaluator

# A list with 64 workgroups along y of 32 positions each, and one whose workgroups do not belong to positions.
START = """(() => {
  globalThis.GPUBufferUsage = { COPY_DST: 1, MAP_READ: 2 };
  globalThis.GPUMapMode = { READ: 1 };
  const seen = [];
  const pass = { setPipeline() {}, setBindGroup() {}, end() {}, dispatchWorkgroups: (x, y, z) => seen.push(y) };
  const buffer = { mapAsync: async () => {} };
  const encoder = { beginComputePass: () => pass, copyBufferToBuffer() {}, finish() {} };
  const queue = { writeBuffer() {}, submit() {} };
  const device = { queue, createCommandEncoder: () => encoder, createBuffer: () => buffer };
  const fields = { stateFields: ["pos", "n", "resampled", "seq"], draftingFields: ["end"], probeMs: 0 };
  const sizes = { maxSteps: 4, maxSmallBatch: 8, logprobRows: 1, logprobRowBytes: 8 };
  const replay = new m.Replay(device, { tokens: buffer, state: buffer }, 4096, { ...fields, ...sizes });
  const grid = { x: 1, y: 64, z: 0, tile: 1, axis: 2 };
  replay.add("split", { ...grid, positions: 32 });
  replay.add("whole", { ...grid, positions: 0 });
  CODE
  return seen;
})()"""


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("replay"), ["py_engine/gpu/replay.js"])


@pytest.mark.parametrize(
    ("positions", "steps", "workgroups"),
    [([0], 1, 1), ([31], 1, 1), ([32], 1, 2), ([30, 5], 3, 2), ([30], 2, 1), ([4000, 7], 1, 64)],
)
def test_steps_reach_the_newest_position(evaluate: Evaluate, positions: list[int], steps: int, workgroups: int) -> None:
    """The last step computes position + steps - 1, and sees that position, too. Lists of other kernels stay whole."""
    code = (
        "replay.decode({ sequences: a[0].map((_, i) => i), positions: a[0], steps: a[1], lists: a[2], rows: false });"
    )
    seen = evaluate(START.replace("CODE", code), positions, steps, ["split", "whole"])
    assert seen == [workgroups, 64] * steps


@pytest.mark.parametrize(("position", "n", "workgroups"), [(0, 1, 1), (30, 2, 1), (30, 3, 2), (64, 8, 3)])
def test_a_prompt_s_tokens_reach_their_own_positions(
    evaluate: Evaluate, position: int, n: int, workgroups: int
) -> None:
    code = 'replay.feed(0, a[0], new Uint32Array(a[1]), ["split", "whole"], false, false);'
    assert evaluate(START.replace("CODE", code), position, n) == [workgroups, 64]
