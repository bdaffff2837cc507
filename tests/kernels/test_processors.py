"""The kernel of logits processors, with a caller's text that uses all that it may call, against numpy."""

import numpy as np
import pytest

from py_engine.cpu import executor
from py_engine.cpu.call import Call
from py_engine.plan.processors import process_op, processor, record_buffer, table_buffer
from py_engine.plan.shared_constants import BANNED, SHORT_BATCH
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import check

SOURCE = """
struct State { parts: u32 } // of the caller's own, as are these names
const state = State(4u);
fn p(token: u32) -> u32 { return token % state.parts; }
fn min(a: u32, b: u32) -> u32 { return a + b; }
fn process(token: u32, logit: f32, scale: f32, step: i32, only: u32) -> f32 {
  if (p(token) == only) {
    return bitcast<f32>(0x7fc00000u + u32(logit == 1234.5)); // NaN
  }
  let last = f32(token_at(token_count() - 1u)) + 0.5 * f32(token_at(0u)) + f32(token_at(min(1u, 9999u)));
  return scale * logit + f32(step) * f32(answer_count()) + last + table_at(token);
}"""
VALUES = {"scale": 1.5, "step": -2, "only": 3}
USED = processor(SOURCE)
PLACES = [(7, 2), (9, 0), (4, 5)]  # the middle sequence has another processor
ANSWER = 5  # position of each answer's first token


def numpy_process(c: Call) -> None:
    """SOURCE in numpy, on the rows of the sequences that have it."""
    vocab, many = c.consts["vocab"], c.params["STATE_PER_TOKEN"]
    logits = c["logits"].reshape(-1, c.consts["stride"])
    for m in range(c.n if many else 1):
        pos, n, _, seq = (int(word) for word in c.states[m])
        at = pos + (1 if many else n)
        if c["processors"][seq, 0] != c.params["NUMBER"]:
            continue
        tokens, made = c["tokens"][seq], logits[m, :vocab] * np.float32(VALUES["scale"])
        made += VALUES["step"] * max(0, at - ANSWER) + 2 * float(tokens[at - 1]) + 0.5 * float(tokens[0])
        made += c["tables"][seq, :vocab]
        made[VALUES["only"] :: 4] = BANNED
        logits[m, :vocab] = made


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize("vocab", [5, 256, 1031])
def test_a_processor(bench_in_f32: Bench, vocab: int, many: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(executor.KERNELS, "process_logits", numpy_process)
    bench = bench_in_f32
    if many:
        ops = bench.begin(Setup(batch=SHORT_BATCH, n=len(PLACES), places=PLACES, vocab=vocab))
    else:
        ops = bench.begin(Setup(batch=1, n=3, pos=6, seq=2, vocab=vocab))
    logits = ops.buffer("logits", (SHORT_BATCH if many else 1, vocab + 7))
    bench.fill(logits, vocab)
    tables = np.zeros(table_buffer(vocab).shape, np.float32)
    tables[:] = bench.random.standard_normal(tables.shape)
    used = USED.with_values(VALUES, tables[2].tobytes())
    for buffer in (record_buffer(), table_buffer(vocab)):
        bench.plan.buffers[buffer.name] = buffer
    records = np.zeros(record_buffer().shape, np.uint32)
    for _, seq in PLACES:
        records[seq] = np.frombuffer(used.record(ANSWER), np.uint32)
    records[0, 0] += 2
    bench.data |= {"processors": records, "processor_tables": tables}
    ops.ops.append(process_op(bench.plan, used, logits, many))
    before = bench.data["logits"].copy()
    gpu, host = bench.run(ops)
    banned = host["logits"] == np.float32(BANNED)
    assert banned.any() == (vocab > VALUES["only"])
    assert np.array_equal(gpu["logits"] == np.float32(BANNED), banned)
    check(bench, gpu["logits"][~banned], host["logits"][~banned], 1e-12)
    if many:
        assert np.array_equal(gpu["logits"][1], before[1])
        assert np.array_equal(gpu["logits"][len(PLACES) :], before[len(PLACES) :])
