"""How far Wisp's numbers for a file are from llama.cpp's: logits of text, embeddings of tokens, logits of answers.

llama.cpp itself rounds, and Wisp's engine is made to look GELU up in float16, too (rounding.py); values that fall on
the other side of a step still differ. Where rounding may be all, the reference decides.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np

from py_engine.plan.lists import DECODE, EMBED, PACKED, PREFILL, pool
from py_engine.plan.packing import packed_batches
from tests.golden.make.encoder_decoder import start_token
from tests.golden.make.gguf_file import GgufFile
from tests.golden.make.llama_cpp import ALONE, Model
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.presets import Settings
from tests.golden.make.record import random_prompt
from tests.golden.make.reference import Reference
from tests.golden.make.reference_model import BANNED
from tests.golden.make.rounding import tables_of_gelu
from tests.support.cpu_models import evaluate, load

N_CTX, PROMPT, STEPS, SEED = 256, 40, 4, 1
# Differences: what counts as equal, and what llama.cpp may round
LIMIT, ROUNDING = 2e-3, 0.2
LOOKED_UP = 0.03  # the limit of models with GELU, which llama.cpp looks up in a table of float16
# Wisp's, where llama.cpp's rounding has chosen other experts at few positions; llama.cpp's median of positions, then
EXACT, TIED = 1e-3, 0.05

# llama.cpp's numbers, and a function that computes Wisp's
Compared = tuple[np.ndarray, Callable[[], np.ndarray]]


@dataclass(frozen=True)
class Difference:
    """The largest difference, with numbers scaled down to a deviation of 3, and what counts as equal."""

    largest: float
    limit: float

    def __str__(self) -> str:
        """What is wrong, if anything."""
        return "" if self.largest <= self.limit else f"differs by {self.largest:.3g}"


def difference(
    library: Library, path: Path, file: GgufFile, used: Settings, ours: Path | None = None, length: int = PROMPT
) -> Difference:
    """Compare Wisp's numbers with llama.cpp's. `ours`: Wisp's file, if it has its own. `length`: tokens of the prompt.

    RuntimeError if llama.cpp does not load the file, WispError if Wisp does not.
    """
    if used.get("masked"):
        want, compute = _masked(library, path, ours or path, length)
    elif file.architecture == "t5":
        want, compute = _answers(library, path, ours or path, length)
    elif "pooling" in used:
        want, compute = _embeddings(library, path, ours or path, length)
    else:
        want, compute = _logits(library, path, ours or path, length, alone=file.architecture in ALONE)
    with tables_of_gelu() as looked_up:
        found = _scaled(want, want - compute())
    limit = LOOKED_UP if looked_up else LIMIT
    if found > limit and want.ndim > 1:
        found = min(found, _judged(want, compute(), ours or path, length))
    return Difference(found, limit)


def _scaled(want: np.ndarray, differences: np.ndarray) -> float:
    return float(np.abs(differences).max() * 3 / max(3, want[want > BANNED].std()))


def _judged(want: np.ndarray, found: np.ndarray, ours: Path, length: int) -> float:
    """How far Wisp's logits are from the reference's, if llama.cpp's are close to these, but less; else infinity."""
    try:
        reference = Reference(ours, N_CTX)
        exact = reference.logits(random_prompt(length, want.shape[1], SEED).tolist())
    except (AssertionError, LookupError, NotImplementedError, TypeError, ValueError):
        return float("inf")  # the reference does not know everything that a model's changes bring
    theirs, own = (_scaled(want, rows[:length] - exact) for rows in (want, found))
    tie = own <= EXACT and _scaled(want, np.median(np.abs(want - found).max(1))) <= TIED
    return own if tie or own < theirs <= ROUNDING else float("inf")


def _logits(library: Library, path: Path, ours: Path, length: int, *, alone: bool) -> Compared:
    """Logits of a prompt, and of tokens that follow it."""
    model = Model(library, path, N_CTX)
    model.alone = alone
    prompt = random_prompt(length, model.n_vocab, SEED).tolist()
    wanted, greedy, rows = model.greedy(prompt, STEPS)

    def compute() -> np.ndarray:
        wisp = load(ours, N_CTX)
        found = [evaluate(wisp, prompt)]
        for step, token in enumerate(greedy[:-1]):
            wisp.feed(length + step, [int(token)], [DECODE])
            found.append(wisp.buffers["logits"].reshape(1, -1)[:, : model.n_vocab].copy())
        return np.concatenate(found)

    return np.concatenate([wanted, rows[1:]]), compute


def _masked(library: Library, path: Path, ours: Path, length: int) -> Compared:
    """Logits of all positions of a diffusion model, whose tokens see all others."""
    model = Model(library, path, N_CTX)
    prompt = random_prompt(length, model.n_vocab - 1, SEED).tolist()

    def compute() -> np.ndarray:
        wisp, rows = load(ours, N_CTX), []
        wisp.feed(0, prompt, [PREFILL])
        for position in range(length):
            wisp.feed(position, prompt[position : position + 1], [DECODE])
            rows.append(wisp.buffers["logits"].reshape(-1)[: model.n_vocab].copy())
        return np.array(rows)

    return model.logits(prompt), compute


def _answers(library: Library, path: Path, ours: Path, length: int) -> Compared:
    """Logits of an encoder-decoder model's answer."""
    model = Model(library, path, N_CTX)
    prompt = random_prompt(length, model.n_vocab, SEED).tolist()
    answer = [start_token(model), *random_prompt(STEPS, model.n_vocab, SEED + 1).tolist()]
    model.read(prompt)

    def compute() -> np.ndarray:
        wisp, rows = load(ours, N_CTX), []
        wisp.set_media(0, -length, None)
        wisp.feed(0, prompt, [PREFILL])
        for i, token in enumerate(answer):
            wisp.feed(length + i, [token], [DECODE])
            rows.append(wisp.buffers["logits"].reshape(-1)[: model.n_vocab].copy())
        return np.array(rows)

    return model.logits(answer), compute


def _embeddings(library: Library, path: Path, ours: Path, length: int) -> Compared:
    """An encoder's results for each token, pooled in each way, and the scores of its head, if it has one."""
    model = Model(library, path, N_CTX, "none")
    prompt = random_prompt(length, model.n_vocab, SEED, low=5).tolist()
    head = any(tensor.name.startswith(("cls.", "cls_")) for tensor in gguf.GGUFReader(path).tensors)
    kinds = ["mean", "cls", "last", *(["rank"] if head else [])]
    wanted = [model.embedding(prompt), *(Model(library, path, N_CTX, kind).embedding(prompt) for kind in kinds)]

    def compute() -> np.ndarray:
        wisp = load(ours, N_CTX, batch=length)
        embedding, rows = wisp.plan.embedding, []
        assert embedding
        for batch in packed_batches([prompt], length, wisp.plan.batch):
            wisp.feed_packed(batch, [PACKED, EMBED])
            rows.append(wisp.buffers[embedding.rows][: len(batch.ids), : embedding.width].copy())
        for kind in kinds:
            for batch in packed_batches([prompt], length, wisp.plan.batch):
                wisp.feed_packed(batch, [PACKED, EMBED, pool(kind)])
            buffer, width = ("ranked", embedding.labels) if kind == "rank" else ("pooled", embedding.width)
            rows.append(wisp.buffers[buffer][:1, :width].copy())
        return np.concatenate([part.reshape(-1) for part in rows])

    return np.concatenate([part.reshape(-1) for part in wanted]), compute
