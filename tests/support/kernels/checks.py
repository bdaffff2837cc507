"""Shared by the tests of kernels: types, and the tolerance between GPU and numpy."""

from dataclasses import replace

import numpy as np
import pytest

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import tiles
from py_engine.plan.ops import pad
from py_engine.plan.sampler_ops import Rules
from py_engine.plan.sampling import FIELDS, Sampling
from py_engine.plan.shared_constants import MAX_SEQUENCES
from tests.support.kernels.bench import Bench, nmse

PLAIN = [Q.F32, Q.F16, Q.BF16]
QUANTISED = [Q.Q8_0, Q.Q4_0]
EPS = 1e-5


def tolerance(bench: Bench) -> float:
    """The normalised mean squared error that rounding may cause."""
    return 1e-5 if bench.device.f16 else 1e-10


def cols_of(type: Q, cols: int) -> int:
    """`cols`, padded to whole blocks for quantised types."""
    return pad(cols) if type in QUANTISED else cols


def check(bench: Bench, got: np.ndarray, want: np.ndarray, limit: float | None = None) -> None:
    """Assert that the GPU's values are numpy's, within the tolerance."""
    assert np.isfinite(want).all()
    assert nmse(got, want) <= (limit or tolerance(bench))


def give(
    bench: Bench, seq: int, sampling: Sampling, answer: int = 0, shifted: int = 0, mask: np.ndarray | None = None
) -> None:
    """Set the sampling parameters of a sequence. `mask`: bool (vocab,), the allowed tokens."""
    given = bench.data.setdefault("sampling", np.full((MAX_SEQUENCES, len(FIELDS)), 0xFFFFFFFF, np.uint32))
    given[seq] = np.frombuffer(sampling.pack(answer, shifted, mask is not None), np.uint32)
    layout = Rules(bench.plan.n_vocab)
    rules = bench.data.setdefault("rules", np.full((MAX_SEQUENCES, layout.words), 0xFFFFFFFF, np.uint32))
    allowed = np.packbits(np.pad(mask, (0, -len(mask) % 32)), bitorder="little") if mask is not None else b""
    parts = [
        (layout.mask(seq), allowed),
        (layout.breakers(seq), sampling.breaker_bits(bench.plan.n_vocab)),
        (layout.biases(seq), sampling.biases()),
    ]
    for at, part in parts:
        words = np.frombuffer(part, np.uint32)
        rules.reshape(-1)[at // 4 : at // 4 + len(words)] = words


def with_matrices(bench: Bench, heads: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A bench with emulated subgroup matrices. In f32, a tile of the usual size exceeds the workgroup's memory."""
    tile = {"TQ": 32 * heads[1] // heads[0], "ROWS": 32, "STRIP": 16, "TS": 32, "SIDE": 16, "LANES": 32}
    tile["DIM"] = -(-heads[2] // 16) * 16
    monkeypatch.setattr(tiles, "attention", lambda *_, **__: ("attention_matrix", tile))
    return Bench(bench.page, replace(bench.device, subgroup=32, matrix=16))
