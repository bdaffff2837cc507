"""quality.json: what llama.cpp's library says of models' quality, by llama-perplexity's definitions.

Perplexity: chunks of n_ctx tokens, the first of each replaced by BOS where the vocabulary adds one; the second half is
scored. Divergence: of the same tokens, from the base model's logits in full precision (llama-perplexity stores them in
16 bits). Multiple choice: the mean log-probability of a choice's tokens after the ones that all choices have in common.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.make.llama_cpp import Model
from tests.golden.make.llama_cpp_api import Library
from tools.paths import ROOT

BASE, QUANTIZED = (ROOT / "static" / "models" / f"wisp-mini-{kind}.gguf" for kind in ("q8_0", "q4_0"))
WITH_BOS = ROOT / "tests" / "golden" / "llama" / "llama.F16.gguf"
N_CTX = 32
TEXT = (
    "Once there was a small fox who lived in a green valley. Every morning she walked to the river and looked"
    ' at the water. One day she found a silver key under a stone. "What is it good for?" she asked the old '
    'owl. "Wait and you will see," said the owl. So the fox waited. A week passed, then a month, and the fox '
    "forgot the key. In spring a tall tree stood where the stone had been, and in the tree there was a door. "
    "The fox opened it with the silver key. Behind the door was a garden with red apples, and all her friends"
    " were there. They sang old songs until the sun went down. The best things need time, and the fox never "
    "lost the key again."
)
QUESTIONS: list[dict[str, Any]] = [
    {"question": "The capital of Italy is", "choices": ["Rome.", "Madrid.", "a graphics card."], "answer": 0},
    {"question": "The opposite of fast is", "choices": ["green.", "slow.", "seven."], "answer": 1},
    {"question": "47 + 38 is", "choices": ["85.", "a dragon.", "Paris."], "answer": 0},
]


def log_softmax(logits: np.ndarray) -> np.ndarray:
    rows = logits.astype(np.float64)
    rows -= rows.max(axis=-1, keepdims=True)
    result: np.ndarray = rows - np.log(np.exp(rows).sum(axis=-1, keepdims=True))
    return result


def chunks(model: Model, text: str) -> list[tuple[list[int], np.ndarray]]:
    """The scored targets of each chunk, and the log-probabilities at their positions."""
    ids, first = model.encode(text, add_special=True), N_CTX // 2
    bos = model.encode("", add_special=True)[:1] if model.adds[0] else []
    found = []
    for at in range(0, len(ids) // N_CTX * N_CTX, N_CTX):
        chunk = ids[at : at + N_CTX]
        model.clear_cache()
        rows = log_softmax(model.logits([*bos, *chunk[len(bos) :]]))
        found.append((chunk[first + 1 :], rows[first:-1]))
    return found


def perplexity(found: list[tuple[list[int], np.ndarray]]) -> dict[str, float]:
    nll = np.array([-row[target] for targets, rows in found for target, row in zip(targets, rows, strict=True)])
    value = float(np.exp(nll.mean()))
    error = float(np.sqrt((np.mean(nll**2) - nll.mean() ** 2) / (len(nll) - 1)) * value)
    return {"perplexity": value, "error": error, "tokens": len(nll), "chunks": len(found)}


def divergence(base: list[tuple[list[int], np.ndarray]], other: list[tuple[list[int], np.ndarray]]) -> dict[str, float]:
    a, b = (np.concatenate([rows for _, rows in found]) for found in (base, other))
    kl = (np.exp(a) * (a - b)).sum(axis=-1)
    return {"mean": float(kl.mean()), "max": float(kl.max()), "same_top": float((a.argmax(-1) == b.argmax(-1)).mean())}


def scores(model: Model, question: str, choices: list[str]) -> list[float]:
    sequences = [model.encode(f"{question} {choice}", add_special=True) for choice in choices]
    common = next(i for i, ids in enumerate(zip(*sequences, strict=False)) if len(set(ids)) > 1)
    found = []
    for ids in sequences:
        model.clear_cache()
        rows = log_softmax(model.logits(ids))
        found.append(float(np.mean([rows[i - 1, ids[i]] for i in range(common, len(ids))])))
    return found


def make(out: Path, library: Library) -> None:
    mini = Model(library, QUANTIZED)
    found = {"base": chunks(Model(library, BASE), TEXT), "model": chunks(mini, TEXT)}
    golden = {
        "text": TEXT,
        "n_ctx": N_CTX,
        "base": perplexity(found["base"]),
        "model": perplexity(found["model"]),
        "with_bos": perplexity(chunks(Model(library, WITH_BOS), TEXT)),
        "divergence": divergence(found["base"], found["model"]),
        "questions": [{**one, "scores": scores(mini, one["question"], one["choices"])} for one in QUESTIONS],
        "settings": mini.settings,
    }
    out.write_text(json.dumps(golden, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
