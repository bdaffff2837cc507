"""Kernels of embeddings of n-grams (plan/ngrams.py): GPU against numpy, as in test_kernels.py."""

import numpy as np

from py_engine.files.tensor_types import TensorType as Q
from py_engine.plan import ngrams
from py_engine.plan.ngrams import Gated, Ngrams
from py_engine.plan.shared_constants import FIRST_MEDIA_ID
from py_engine.plan.streams import Streams
from tests.support.kernels.bench import Bench, Setup
from tests.support.kernels.checks import check
from tests.support.kernels.states import BATCHES
from tests.support.kernels.variants import in_pairs, in_turn

FACTORS = (0xFFFF_FFFF_FFFF_FFC5, 0x9E37_79B9_7F4A_7C15, 3, 0x8000_0001_0000_0001)
WIDE = (1 << 31) - 99  # rows of a head: hashes beyond a table are none of this part's
SIZES = [(Q.F32, 5, 3, 1), (Q.Q8_0, 64, 2, 3), (Q.F16, 40, 4, 2)]  # type, columns, tokens of an n-gram, heads of each


@in_turn("setup, type, cols, longest, per_length", [(setup, *SIZES[i % 3]) for i, setup in enumerate(BATCHES)])
def test_rows_of_ngrams(bench: Bench, setup: Setup, type: Q, cols: int, longest: int, per_length: int) -> None:
    """Among the tokens are ends of texts and media. The table has fewer rows than hashes may name."""
    ops, heads = bench.begin(setup), (longest - 1) * per_length
    sizes = tuple(WIDE if i == heads - 1 and i % 2 else 7 + 5 * i for i in range(heads))
    firsts = tuple(3 * i for i in range(heads))
    given = Ngrams(FACTORS[:longest], firsts, sizes, per_length, end=4, picture=7, taps=2)
    tokens = bench.data["tokens"]
    tokens[:, ::4], tokens[:, 1::7] = 4, FIRST_MEDIA_ID + 2
    x = ngrams.embed(ops, bench.weight("table", type, 30, cols), given)
    bench.data["ngram_hashes"] = np.frombuffer(bench.plan.constants["ngram_hashes"], np.uint32).reshape(1, -1)
    gpu, host = bench.run(ops)
    got, want = gpu[x.name][: bench.n, : heads * cols], host[x.name][: bench.n, : heads * cols]
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    assert not np.isnan(want[:, :cols]).any()
    check(bench, np.nan_to_num(got), np.nan_to_num(want))
    assert np.isnan(gpu[x.name][bench.n :]).all()


def test_hashes_are_those_of_whole_numbers() -> None:
    """The twin in numpy wraps as 64 bits do, and a text's end hides what is before it."""
    from tests.golden.make import reference_qwen4

    class Model:
        def key(self, name: str) -> object:
            return {
                "ple.eos_token_id": 4, "ple.ngram_size": 3, "ple.heads_per_ngram": 2,
                "ple.layer_multipliers": list(FACTORS[:3]), "ple.head_vocab_sizes": [11, 13, 17, 19],
                "ple.head_offsets": [0, 11, 24, 41],
            }[name]  # fmt: skip

    ids = [9, 4, 4, 5, 6, 300, 2**31 - 1, 4, 8]
    rows = reference_qwen4.rows(Model(), np.array(ids))  # type: ignore[arg-type]
    before = [[4, 4], [9, 4], [4, 4], [4, 4], [5, 4], [6, 5], [300, 6], [2**31 - 1, 300], [4, 4]]
    for token, (last, other), found in zip(ids, before, rows, strict=True):
        pair = (token * FACTORS[0] ^ last * FACTORS[1]) % (1 << 64)
        three = pair ^ other * FACTORS[2] % (1 << 64)
        assert found.tolist() == [pair % 11, 11 + pair % 13, 24 + three % 17, 41 + three % 19]


@in_pairs(("n, cols, count", [(1, 4, 2), (3, 28, 4), (2, 257, 3), (4, 1100, 2)]))
def test_gated_ngrams(bench: Bench, n: int, cols: int, count: int) -> None:
    ops, wide = bench.begin(Setup(batch=n + 1, n=n)), count * cols
    streams = Streams(ops.rows("streams", wide), count, cols, 0.0)
    key, value = ops.rows("key", wide), ops.rows("value", cols)
    for rows, used in ((streams.rows, wide), (key, wide), (value, cols)):
        values = bench.fill(rows)
        values[:, :used] *= 0.01  # with which eps counts
        values[:, used:] = values[n:] = np.nan
    bench.data[key.name][0, :cols] = 0  # a score of 0
    y = ngrams.add(ops, streams, Gated(key, value, bench.vector("norms", 3 * wide)), 1e-4)
    gpu, host = bench.run(ops)
    for rows in (y, streams.rows):
        check(bench, gpu[rows.name][:n, :wide], host[rows.name][:n, :wide])
    assert np.isnan(gpu[y.name][n:]).all()
