"""Compare logits along a long context with llama.cpp's, on the CPU engine.

    python -m tests.golden.make.long_context llama3-rope --tokens 131072

A random model of one narrow layer reads a random prompt; every 16,384 positions, and at the end, a batch of logits is
compared. 131,072 tokens take about 20 minutes on two cores. It needs llama.cpp (README.md).
"""

import argparse
import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from tests.golden.make.gguf_file import Layout
from tests.golden.make.llama_cpp import Model
from tests.golden.make.llama_cpp_api import library
from tests.golden.make.presets import PRESETS
from tests.golden.make.random_models import write
from tests.support import wasm_engines

SEED, BATCH, EVERY = 5, 128, 16384
NARROW = {"n_layer": 1, "n_head": 2, "n_kv": 1, "n_embd": 64, "n_ff": 64}


def compared(at: int, count: int) -> bool:
    """Whether the batch at a position is one of those that are compared."""
    return at % EVERY == 0 or at + BATCH >= count


def llama_cpp(path: Path, ids: Sequence[int]) -> Iterator[tuple[int, np.ndarray]]:
    """(position, logits of its batch (n, n_vocab))"""
    model = Model(library(), path, len(ids), batch=BATCH)
    for at in range(0, len(ids), BATCH):
        logits = model.logits(ids[at : at + BATCH], at)
        if compared(at, len(ids)):
            yield at, logits
    model.close()


async def wisp(path: Path, ids: Sequence[int]) -> np.ndarray:
    """Logits of every position (n, n_vocab)."""
    engine = await wasm_engines.load(path, len(ids), BATCH, threads=2)
    logits, shape = await engine.evaluate(list(ids))
    return np.asarray(logits).reshape(shape)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.make.long_context", description=__doc__)
    parser.add_argument("preset", choices=PRESETS, metavar="PRESET")
    parser.add_argument("--tokens", type=int, default=1 << 17)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.gguf")
        write(path, options.preset, "F32", SEED, Layout(), library(), **NARROW, ctx=options.tokens)
        ids = np.random.default_rng(SEED).integers(3, 250, options.tokens).tolist()
        wanted = dict(llama_cpp(path, ids))
        got = asyncio.run(wisp(path, ids))
    for at, logits in wanted.items():
        ours = got[at : at + len(logits)]
        same = (ours.argmax(1) == logits.argmax(1)).mean()
        print(f"{at}: largest difference {np.abs(ours - logits).max():.2g}, most likely token the same in {same:.1%}")


if __name__ == "__main__":
    main()
