"""What replay.js submits, and its workgroups over positions. In Node, with a device that notes what reaches it."""

from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator

CAPACITY = 4096  # tokens of each sequence
STATE_BYTES, DRAFTING_BYTES, ID_BYTES = 16, 12, 128  # of the fields below; of 4 steps of 8 tokens
# A list with 64 workgroups along y of 32 positions each, and one whose workgroups do not belong to positions. Both have
# a workgroup along z for each token. `seen` has each dispatch as [y, z], and the rest of what reaches the device.
START = """(() => {
  globalThis.GPUBufferUsage = { COPY_DST: 1, MAP_READ: 2 };
  globalThis.GPUMapMode = { READ: 1 };
  const seen = { dispatches: [], passes: 0, submits: 0, writes: [], copies: [], groups: [] };
  const dispatchWorkgroups = (x, y, z) => seen.dispatches.push([y, z]);
  const pass = { setPipeline() {}, setBindGroup() {}, end() {}, dispatchWorkgroups };
  const named = (name) => ({ name, mapAsync: async () => {} });
  const beginComputePass = () => (seen.passes++, pass);
  const copy = (from, offset, to, at, bytes) => seen.copies.push([from.name, offset, to.name, at, bytes]);
  const encoder = { beginComputePass, copyBufferToBuffer: copy, finish() {} };
  const writeBuffer = ({ name }, offset, data) => seen.writes.push([name, offset, [...data]]);
  const queue = { writeBuffer, submit: () => seen.submits++ };
  const device = { queue, createCommandEncoder: () => encoder, createBuffer: () => named("staging") };
  device.createBindGroup = ({ entries }) => {
    seen.groups.push(entries.map(({ resource }) => Object.values(resource).join()));
    return {};
  };
  const stateFields = ["pos", "n", "resampled", "seq"], draftingFields = ["end", "length", "newest"];
  const sizes = { maxSteps: 4, maxSmallBatch: 8, shortBatch: 8, logprobRows: 1, logprobRowBytes: 8 };
  const buffers = Object.fromEntries(["tokens", "state", "drafting"].map((name) => [name, named(name)]));
  const replay = new m.Replay(device, buffers, 4096, { stateFields, draftingFields, probeMs: 0, ...sizes });
  const bindings = { entries: [] };
  const grid = { x: 1, y: 64, z: 0, tile: 1, times: 1, axis: 2, above: 0, upTo: 0, orUnknown: false, bindings };
  replay.add("split", { ...grid, positions: 32 });
  replay.add("whole", { ...grid, positions: 0 });
  replay.add("by context", { ...grid, y: 1, positions: 0, upTo: 256 });
  replay.add("by context", { ...grid, y: 2, positions: 0, above: 256 });
  replay.add("or unknown", { ...grid, y: 3, positions: 0, upTo: 256, orUnknown: true });
  const clear = () => {
    Object.assign(seen, { dispatches: [], passes: 0, submits: 0, writes: [], copies: [], groups: [] });
  };
  CODE
  return seen;
})()"""
# Begins drafts of two sequences, whose newest tokens are at positions 40 and 7; then notes what draft() returns.
DRAFTS = START.replace(
    "CODE",
    """replay.startDrafts([{ seq: 2, position: 40 }, { seq: 0, position: 7 }]);
  const step = [{ lists: ["split"], n: 1 }, { lists: ["whole"], n: 2 }];
  seen.returned = [];
  const draft = (steps, ends, lookup = true) => seen.returned.push(replay.draft({ steps, step, ends, lookup }));
  clear();
  CODE""",
)
FAR = [CAPACITY, CAPACITY]


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("replay"), ["py_engine/gpu/replay.js"])


def heights(seen: dict[str, Any]) -> list[int]:
    """The workgroups along y of each dispatch."""
    return [y for y, _ in seen["dispatches"]]


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
    assert heights(seen) == [workgroups, 64] * steps


@pytest.mark.parametrize(
    ("positions", "steps", "workgroups"), [([0], 1, 1), ([255], 1, 1), ([256], 1, 2), ([255], 2, 2), ([9, 256], 1, 2)]
)
def test_steps_run_what_belongs_to_their_longest_context(
    evaluate: Evaluate, positions: list[int], steps: int, workgroups: int
) -> None:
    """All steps of a submit run the same of a list's alternatives: the last one has the longest context."""
    code = (
        "replay.decode({ sequences: a[0].map((_, i) => i), positions: a[0], steps: a[1], lists: a[2], rows: false });"
    )
    seen = evaluate(START.replace("CODE", code), positions, steps, ["by context"])
    assert heights(seen) == [workgroups] * steps


def test_where_the_context_is_not_known_what_belongs_to_any_runs(evaluate: Evaluate) -> None:
    for name, found in (("by context", [2]), ("or unknown", [3])):
        code = "replay.draft({ steps: 1, step: [{ lists: [a[0]], n: 1 }], ends: a[1], lookup: true });"
        assert heights(evaluate(DRAFTS.replace("CODE", code), name, FAR)) == found
    for position, found in ((255, [3]), (256, [])):
        code = 'replay.feed(0, a[0], new Uint32Array(1), ["or unknown"], false, false);'
        assert heights(evaluate(START.replace("CODE", code), position)) == found


@pytest.mark.parametrize(("position", "n", "workgroups"), [(0, 1, 1), (30, 2, 1), (30, 3, 2), (64, 8, 3)])
def test_a_prompt_s_tokens_reach_their_own_positions(
    evaluate: Evaluate, position: int, n: int, workgroups: int
) -> None:
    code = 'replay.feed(0, a[0], new Uint32Array(a[1]), ["split", "whole"], false, false);'
    assert heights(evaluate(START.replace("CODE", code), position, n)) == [workgroups, 64]


def test_a_prompt_s_first_list_is_divided_into_slices(evaluate: Evaluate) -> None:
    """Each slice writes the State again, which steps between them have changed, and reads a token back."""
    code = """for (let i = 0; i < 4; i++) replay.add("layers", { ...grid, y: i + 1, positions: 0 });
      const rest = replay.feed(3, 100, new Uint32Array(20), ["layers", "whole"], true, false, 3);
      const heights = () => seen.dispatches.map(([y]) => y);
      seen.parts = [heights()];
      for (const slice of rest) {
        clear();
        replay.decode({ sequences: [1], positions: [9], steps: 1, lists: [], rows: false });
        slice();
        const read = seen.copies.filter(([from]) => from === "tokens").map(([, offset]) => offset);
        seen.parts.push([heights(), seen.submits, seen.writes.at(-1), read.at(-1)]);
      }"""
    seen = evaluate(START.replace("CODE", code))
    state, token = ["state", 0, [100, 20, 0, 3]], 4 * (3 * CAPACITY + 120)
    assert seen["parts"] == [[1], [[2, 3], 2, state, token], [[4, 64], 2, state, token]]


@pytest.mark.parametrize(("position", "workgroups"), [(0, 1), (31, 1), (32, 2), (2047, 64)])
def test_forward_runs_on_one_token(evaluate: Evaluate, position: int, workgroups: int) -> None:
    """It reads nothing back, and its workgroups reach the token's position."""
    code = 'replay.forward([{ seq: 3, position: a[0] }], ["split", "whole"]);'
    seen = evaluate(START.replace("CODE", code), position)
    assert seen["dispatches"] == [[workgroups, 1], [64, 1]]
    assert seen["writes"] == [["state", 0, [position, 1, 0, 3]]]
    assert (seen["passes"], seen["submits"], seen["copies"]) == (1, 1, [])


@pytest.mark.parametrize(
    ("before", "writes"),
    [
        ("replay.forward([{ seq: 1, position: 31 }], []);", 0),
        ("replay.forward([{ seq: 1, position: 30 }], []);", 1),
        ("replay.forward([{ seq: 2, position: 31 }], []);", 1),
        ("replay.decode({ sequences: [1], positions: [29], steps: 2, lists: [], rows: false });", 0),
        ("replay.decode({ sequences: [1, 2], positions: [29, 29], steps: 2, lists: [], rows: false });", 1),
        ("replay.feed(1, 30, new Uint32Array(1), [], false, false);", 1),
        ("replay.startDrafts([{ seq: 1, position: 31 }]);", 1),
    ],
)
def test_forward_writes_the_state_unless_the_gpu_has_it(evaluate: Evaluate, before: str, writes: int) -> None:
    code = f'{before} clear(); replay.forward([{{ seq: 1, position: 31 }}], ["whole"]);'
    assert evaluate(START.replace("CODE", code))["writes"] == [["state", 0, [31, 1, 0, 1]]] * writes


def test_steps_with_drafts_are_one_pass_with_all_workgroups(evaluate: Evaluate) -> None:
    """Their positions are known on the GPU alone: each list runs whole, on the tokens of its batch."""
    seen = evaluate(DRAFTS.replace("CODE", "draft(2, a[0]);"), FAR)
    assert seen["returned"] == [True]
    assert seen["dispatches"] == [[64, 1], [64, 2]] * 2
    assert (seen["passes"], seen["submits"]) == (1, 1)


def test_steps_with_drafts_read_back_what_they_may_yield(evaluate: Evaluate) -> None:
    """Two sequences leave each other 7 of 8 tokens of a batch: 14 positions of each in two steps."""
    seen = evaluate(DRAFTS.replace("CODE", "draft(2, a[0]);"), FAR)
    newest = ID_BYTES + 8 * STATE_BYTES
    assert seen["copies"] == [
        ["tokens", 4 * (2 * CAPACITY + 41), "staging", 0, 4 * 14],
        ["tokens", 4 * 8, "staging", 4 * 14, 4 * 14],
        ["state", 0, "staging", ID_BYTES, 2 * STATE_BYTES],
        ["drafting", 2 * DRAFTING_BYTES + 8, "staging", newest, 4],
        ["drafting", 8, "staging", newest + 4, 4],
    ]


def test_prompt_lookup_is_told_ends_that_changed(evaluate: Evaluate) -> None:
    """Drafts stay before a sequence's last position. A draft model is told no end."""
    code = "draft(1, a[0]); draft(1, [a[0][0], 100]);"
    seen = evaluate(DRAFTS.replace("CODE", code), FAR)
    assert seen["returned"] == [True, True]
    both = [["drafting", 2 * DRAFTING_BYTES, [CAPACITY - 1]], ["drafting", 0, [CAPACITY - 1]]]
    assert seen["writes"] == [*both, ["drafting", 0, [99]]]
    assert evaluate(DRAFTS.replace("CODE", "draft(1, a[0], false);"), FAR)["writes"] == []


@pytest.mark.parametrize(
    ("steps", "ends", "submitted"),
    [
        ([1], [48, 15], [True]),  # 7 positions: 41 to 47, and 8 to 14
        ([1], [47, 15], [False]),
        ([1], [48, 14], [False]),
        ([2], [55, 22], [True]),
        ([2], [54, 22], [False]),
        ([1, 1], [55, 22], [True, True]),  # the first step may have taken 7 of them
        ([1, 1], [55, 21], [True, False]),
        ([2, 1], FAR, [True, False]),  # 21 positions of each are more than a result has place for
        ([3], FAR, [False]),
        ([3, 2], FAR, [False, True]),  # what was refused does not count
    ],
)
def test_steps_with_drafts_are_refused_where_they_might_go_too_far(
    evaluate: Evaluate, steps: list[int], ends: list[int], submitted: list[bool]
) -> None:
    seen = evaluate(DRAFTS.replace("CODE", "for (const n of a[0]) draft(n, a[1]);"), steps, ends)
    assert seen["returned"] == submitted
    assert seen["submits"] == seen["passes"] == sum(submitted)
    taken = sum(n for n, done in zip(steps, submitted, strict=True) if done)
    assert len(seen["dispatches"]) == 2 * taken
    assert bool(seen["writes"]) == any(submitted)


@pytest.mark.parametrize(("steps", "submitted"), [(4, True), (5, False)])
def test_one_sequence_may_take_whole_batches(evaluate: Evaluate, steps: int, submitted: bool) -> None:
    code = """replay.startDrafts([{ seq: 0, position: 0 }]);
    seen.returned = replay.draft({ steps: a[0], step: [{ lists: [], n: 1 }], ends: [4096], lookup: false });"""
    assert evaluate(START.replace("CODE", code), steps)["returned"] is submitted


# Submits steps of one or two sequences and slices of a prompt; notes how often the device is probed for the oldest
# result, which is ready once it was probed twice, or later.
RESULT = """(async () => {
  globalThis.GPUBufferUsage = { COPY_DST: 1, MAP_READ: 2 };
  globalThis.GPUMapMode = { READ: 1 };
  let probes = 0;
  let ready = () => {};
  const mapped = new Promise((done) => (ready = done));
  setTimeout(ready, 200);
  const createBuffer = ({ size }) => ({
    getMappedRange: (at, bytes = size - at) => new ArrayBuffer(bytes), mapAsync: () => mapped, unmap() {}
  });
  const pass = { setPipeline() {}, setBindGroup() {}, end() {}, dispatchWorkgroups() {} };
  const createCommandEncoder = () => ({ beginComputePass: () => pass, copyBufferToBuffer() {}, finish() {} });
  const submit = (buffers) => buffers.length || ++probes < 2 || ready();
  const device = { queue: { writeBuffer() {}, submit }, createCommandEncoder, createBuffer };
  const sizes = { maxSteps: 4, maxSmallBatch: 8, shortBatch: 8, logprobRows: 1, logprobRowBytes: 8, probeMs: 50 };
  const shared = { stateFields: ["pos", "n", "resampled", "seq"], draftingFields: [], ...sizes };
  const replay = new m.Replay(device, { tokens: {}, state: {} }, 4096, shared);
  const work = {
    slice: () => replay.feed(2, 0, new Uint32Array(3), [], true, false),
    steps: () => replay.decode({ sequences: [0, 1], positions: [5, 7], steps: 1, lists: [], rows: false }),
    step: () => replay.decode({ sequences: [0], positions: [5], steps: 1, lists: [], rows: false }),
  };
  for (const name of a[0]) work[name]();
  await replay.result();
  return probes;
})()"""


@pytest.mark.parametrize(
    ("submits", "probed"),
    [
        (["slice", "steps"], True),
        (["steps"], True),
        (["steps", "slice"], True),  # the slice runs long after the steps
        (["steps", "steps"], False),
        (["step", "step"], True),
    ],
)
def test_results_that_no_later_result_brings_are_looked_for(
    evaluate: Evaluate, submits: list[str], probed: bool
) -> None:
    """Else streams would get the tokens between two slices of a prompt with the second slice."""
    assert bool(evaluate(RESULT, submits)) == probed


def test_enlarged_caches_are_bound_in_place_of_the_old_ones(evaluate: Evaluate) -> None:
    code = """const binding = (buffer, i) => ({ binding: i, resource: { buffer, offset: 256, size: 64 } });
      const made = (...names) => ({ ...grid, bindings: { layout: "layout", entries: names.map(binding) } });
      replay.add("attention", made("weights", "keys"));
      replay.add("attention", made("weights", "bias"));
      replay.add("append", made("values", "keys"));
      clear();
      replay.bindAgain([["keys", "more keys", 512], ["values", "more values", 1024]]);
      replay.bindAgain([["more keys", "most keys", 999]]);"""
    assert evaluate(START.replace("CODE", code))["groups"] == [
        ["weights,256,64", "more keys,0,512"],
        ["more values,0,1024", "more keys,0,512"],
        ["weights,256,64", "most keys,0,999"],
        ["more values,0,1024", "most keys,0,999"],
    ]


# Encodes a list for position 40, then runs forward(); encoded buffers are named by how many there were before them.
FORWARD = (
    START.replace("finish() {} };", "finish: () => `buffer ${finished++}` };")
    .replace("submit: () => seen.submits++", "submit: (buffers) => seen.submitted.push(...buffers)")
    .replace("(() => {", "(() => {\n  let finished = 0;", 1)
    .replace("groups: [] };", "groups: [], submitted: [] };", 1)
)


@pytest.mark.parametrize(
    ("code", "submitted"),
    [
        ("", "buffer 0"),
        ("places[0].position = 41;", "buffer 1"),
        ("places[0].seq = 0;", "buffer 1"),
        ("replay.bindAgain([]);", "buffer 1"),  # old buffers are destroyed
        ("replay.add('other', grid);", "buffer 1"),
    ],
)
def test_commands_encoded_ahead_are_submitted_where_they_are_still_right(
    evaluate: Evaluate, code: str, submitted: str
) -> None:
    run = f"""const places = [{{ seq: 2, position: 40 }}], lists = ["split", "whole"];
      const encoded = replay.encodeForward([{{ ...places[0] }}], lists);
      {code}
      replay.forward(places, lists, encoded);"""
    seen = evaluate(FORWARD.replace("CODE", run))
    assert seen["submitted"] == [submitted]
    assert heights(seen)[:2] == [2, 64], "the workgroups along y reach its position, and no farther"


# Reads rows of 3 of 4 floats, which count up, several times in turn, then twice at once.
READ = """(async () => {
  globalThis.GPUBufferUsage = { COPY_DST: 1, MAP_READ: 2 };
  globalThis.GPUMapMode = { READ: 1 };
  const seen = { made: [], destroyed: [], rows: [] };
  const source = new Float32Array(64).map((_, i) => i);
  const createBuffer = ({ size }) => {
    const bytes = new Uint8Array(size);
    const getMappedRange = (at, n) => bytes.slice(at, at + n).buffer;
    seen.made.push(size);
    const destroy = () => seen.destroyed.push(size);
    return { size, bytes, getMappedRange, mapAsync: async () => {}, unmap() {}, destroy };
  };
  const copyBufferToBuffer = (from, offset, to, at, n) => to.bytes.set(new Uint8Array(from.buffer, offset, n), at);
  const createCommandEncoder = () => ({ copyBufferToBuffer, finish() {} });
  const device = { createBuffer, createCommandEncoder, queue: { submit() {} } };
  const replay = new m.Replay(device, {}, 1, { stateFields: [], draftingFields: [], probeMs: 0 });
  const read = async (n, offset) =>
    seen.rows.push([...(await replay.pooled(n, [], { buffer: source, offset, pitch: 4, width: 3 }))]);
  for (const [n, offset] of a[0]) await read(n, offset);
  await Promise.all(a[0].map(([n, offset]) => read(n, offset)));
  return seen;
})()"""


def test_buffers_that_rows_are_read_from_are_used_again(evaluate: Evaluate) -> None:
    seen = evaluate(READ, [[2, 0], [1, 16], [3, 32]])
    expected = [[0, 1, 2, 4, 5, 6], [4, 5, 6], [8, 9, 10, 12, 13, 14, 16, 17, 18]]
    assert seen["rows"][:3] == expected
    assert sorted(seen["rows"][3:]) == sorted(expected)
    assert seen["made"][:2] == [32, 48], "one row fits into the buffer of two, three do not"
    assert seen["made"][2:] == [16, 48], "of three reads at once, the first has the buffer of the one before"
    assert seen["destroyed"] == [32, 16], "two stay for the next reads"
