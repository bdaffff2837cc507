"""Record what an engine must reproduce: llama.cpp's and the reference's outputs on one model.

The arrays (float32 unless noted; V: vocabulary, n: prompt length):

    prompt (n) int32                  no BOS is added
    logits (n, V)                     after every prompt token, one causal batch
    greedy (g) int32                  llama.cpp's argmax continuation through the cache; EOS does not stop it
    long_prompt, long_logits          the same for a prompt past the window; only the logits of its last 16 tokens
    logits_ref, long_logits_ref       from the reference on the dequantized weights
    greedy_logits_ref (g, V)          the reference's logits where each greedy id was taken
    greedy_logits (g, V)              llama.cpp's, only where the reference does not know the architecture
    embd_<pooling>, embd_<pooling>_ref    embeddings before normalisation; "none": one for each token
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from tests.golden.make.llama_cpp import ALONE, POOLING, Model
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.reference import Reference
from tests.golden.make.reference_model import UnsupportedArchitecture
from tests.support.tolerances import log_softmax

LONG_ROWS = 16
ROUTE_MARGIN = 0.02  # the router's logits of chosen and rejected experts differ by at least this
INDEX_MARGIN = 0.002  # and scores of positions that an index chooses and others, in deviations
ATTEMPTS = 40  # prompts to try for such a margin
TEXTS = ["Hello world", " the cat and the hat, 1000 times!", "naïve 😀 日本", "<|im_start|>user\nhi<|im_end|>"]

Arrays = dict[str, np.ndarray]
About = dict[str, Any]


def random_prompt(n: int, n_vocab: int, seed: int, low: int = 3) -> np.ndarray:
    """Ids over the vocabulary from `low` on, some repeated so that attention has something to look back at."""
    ids = np.random.default_rng(seed).integers(low, n_vocab, n).astype(np.int32)
    if n >= 16:
        ids[n // 2 : n // 2 + 4] = ids[2:6]
    return ids


def noise(reference: np.ndarray, got: np.ndarray) -> dict[str, float]:
    """How far llama.cpp's logits are from the reference's."""
    a, b = log_softmax(reference), log_softmax(got)
    difference = np.abs(reference.astype(np.float64) - got)
    return {
        "max_abs": float(difference.max()),
        "mean_abs": float(difference.mean()),
        "kl": float((np.exp(a) * (a - b)).sum(-1).mean()),
        "top1": float((reference.argmax(-1) == got.argmax(-1)).mean()),
    }


def read_reference(path: Path, n_ctx: int, about: About) -> Reference | None:
    try:
        return Reference(path, n_ctx)
    except UnsupportedArchitecture as reason:
        about["reference"] = f"none: architecture {reason}"
        return None


def describe(path: Path, seed: int) -> About:
    architecture = gguf.GGUFReader(path).fields["general.architecture"].contents()
    return {"model": path.name, "arch": architecture, "prompt_seed": seed}


def record_embeddings(
    library: Library, path: Path, n: int, seed: int, n_ctx: int, poolings: Sequence[str]
) -> tuple[Arrays, About]:
    """Embeddings of one prompt by each pooling."""
    arrays: Arrays = {}
    about = describe(path, seed)
    reference = read_reference(path, n_ctx, about)
    for pooling in poolings:
        model = Model(library, path, n_ctx, pooling)
        arrays["prompt"] = random_prompt(n, model.n_vocab, seed, low=5)
        prompt = arrays["prompt"].tolist()
        arrays[f"embd_{pooling}"] = model.embedding(prompt)
        if reference:
            arrays[f"embd_{pooling}_ref"] = reference.embedding(prompt, pooling).astype(np.float32)
        about["settings"] = model.settings
        about["texts"] = [{"text": t, "ids": model.encode(t, add_special=True, parse_special=True)} for t in TEXTS[:3]]
        model.close()
    field = gguf.GGUFReader(path).fields.get(f"{about['arch']}.pooling_type")
    number = field.contents() if field else 0
    about["default_pooling"] = next(name for name, value in POOLING.items() if value == number)
    return arrays, about


def record_logits(
    library: Library, path: Path, n: int, n_gen: int, seed: int, n_long: int, n_ctx: int
) -> tuple[Arrays, About]:
    """Logits of a prompt, its greedy continuation, and a long prompt's logits.

    A router's tie would make a mixture's golden depend on rounding, and an index's near tie: the prompt with the widest
    margin is taken.
    """
    about = describe(path, seed)
    reference = read_reference(path, n_ctx, about)
    model = Model(library, path, n_ctx)
    model.alone = about["arch"] in ALONE
    arrays: Arrays = {}
    best, best_margins = -1.0, (np.inf, np.inf)
    for attempt in range(ATTEMPTS):
        prompt_seed = seed + 10000 * attempt
        new, rows = outputs(model, reference, n, n_gen, prompt_seed, n_long)
        margins = (reference.route_margin, reference.index_margin) if reference else (np.inf, np.inf)
        margin = min(margins[0], margins[1] * ROUTE_MARGIN / INDEX_MARGIN)
        if margin > best:
            best, arrays, best_margins = margin, new, margins
            top = np.sort(rows, axis=1)[:, -2:]
            about["prompt_seed"] = prompt_seed
            about["greedy_margin"] = [round(float(first - second), 4) for second, first in top]
        if best > ROUTE_MARGIN:
            break
    if reference and reference.experts:
        about["route_margin"] = best_margins[0]
    if best_margins[1] < np.inf:
        about["index_margin"] = best_margins[1]
    about["settings"] = model.settings
    about["texts"] = [{"text": t, "ids": model.encode(t, parse_special=True)} for t in TEXTS]
    model.close()
    if reference:
        about["llama_cpp_vs_reference"] = noise(arrays["logits_ref"], arrays["logits"])
        if n_long:
            about["llama_cpp_vs_reference_long"] = noise(arrays["long_logits_ref"], arrays["long_logits"])
    return arrays, about


def outputs(
    model: Model, reference: Reference | None, n: int, n_gen: int, seed: int, n_long: int
) -> tuple[Arrays, np.ndarray]:
    """One prompt's arrays, and llama.cpp's logits (n_gen, V) that the greedy ids came from."""
    prompt = random_prompt(n, model.n_vocab, seed)
    arrays: Arrays = {"prompt": prompt}
    arrays["logits"], arrays["greedy"], rows = model.greedy(prompt.tolist(), n_gen)
    if n_long:
        long = arrays["long_prompt"] = random_prompt(n_long, model.n_vocab, seed + 1000)
        model.clear_cache()
        arrays["long_logits"] = model.logits(long.tolist())[-LONG_ROWS:]
    if not reference:
        arrays["greedy_logits"] = rows
        return arrays, rows
    reference.route_margin = reference.index_margin = np.inf
    # Prompt and greedy ids at once: the prompt's rows, then those that the ids came from.
    full = reference.logits([*prompt.tolist(), *arrays["greedy"][:-1].tolist()])
    arrays["logits_ref"] = full[:n].astype(np.float32)
    arrays["greedy_logits_ref"] = full[n - 1 :].astype(np.float32)
    if n_long:
        arrays["long_logits_ref"] = reference.logits(long.tolist())[-LONG_ROWS:].astype(np.float32)
    return arrays, rows


def save(stem: Path, arrays: Arrays, about: About) -> None:
    """Write stem.npz and stem.json."""
    np.savez_compressed(stem.with_name(stem.name + ".npz"), **arrays)  # type: ignore[arg-type]
    lines = (f" {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in about.items())
    stem.with_name(stem.name + ".json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
