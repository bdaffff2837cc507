"""Record a diffusion model: the logits of every position, and what generation makes of them.

Generation here drives llama.cpp's logits as its diffusion example does at temperature 0, apart from three things. The
likeliest token is taken: the example draws one where the temperature is 0. The mask token is never taken. The algorithm
by entropy begins with the least, as Dream's authors define it: the example begins with the largest.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.golden.make.llama_cpp import Model
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.record import ROUTE_MARGIN, About, Arrays, describe, noise, random_prompt, read_reference
from tests.golden.make.reference_model import softmax

ENTROPY, MARGIN, CONFIDENCE = 1, 2, 4  # llama.cpp's numbers of algorithms
LIKELIEST = 20  # tokens whose probabilities the entropy is of; all others count as one
RUNS: list[dict[str, Any]] = [
    {"count": 12, "steps": 8, "eps": 0.001, "block": 0, "algorithm": CONFIDENCE},
    {"count": 12, "steps": 6, "eps": 0.0, "block": 4, "algorithm": CONFIDENCE},
    {"count": 10, "steps": 5, "eps": 0.001, "block": 0, "algorithm": MARGIN},
    {"count": 12, "steps": 4, "eps": 0.0, "block": 8, "algorithm": ENTROPY},
]
LEAST_MARGINS = 0.02, 0.002  # of logits and of probabilities: rounding must not decide
ATTEMPTS = 400

LogitsOf = Callable[[list[int]], np.ndarray]


def record_diffusion(library: Library, path: Path, n: int, seed: int, n_ctx: int) -> tuple[Arrays, About]:
    """Logits of a prompt with masks, and the tokens of each of RUNS, each from a prompt without near ties."""
    about = describe(path, seed)
    reference = read_reference(path, n_ctx, about)
    assert reference
    model = Model(library, path, n_ctx)
    mask = model.api.llama_vocab_mask(model.vocab)
    shifted = bool(reference.metadata.get("diffusion.shift_logits", True))
    arrays: Arrays = {}
    best = -1.0
    for attempt in range(ATTEMPTS):
        prompt = random_prompt(n, model.n_vocab - 1, seed + 10000 * attempt)
        prompt[n // 4 :: 3] = mask
        reference.route_margin = np.inf
        logits = reference.logits(prompt.tolist())
        if reference.route_margin > best:
            best, about["prompt_seed"] = reference.route_margin, seed + 10000 * attempt
            arrays = {"prompt": prompt, "logits_ref": logits.astype(np.float32)}
        if best > ROUTE_MARGIN:
            break
    arrays["logits"] = model.logits(arrays["prompt"].tolist())
    if reference.experts:
        about["route_margin"] = best
    about["llama_cpp_vs_reference"] = noise(arrays["logits_ref"], arrays["logits"])
    about["runs"] = []
    for k, run in enumerate(RUNS):
        for attempt in range(ATTEMPTS):
            prompt = random_prompt(9 + k, model.n_vocab - 1, seed + 100 * k + 10000 * attempt)
            ids, margins = denoise(model.logits, prompt.tolist(), mask, shifted, **run)
            if all(margin > least for margin, least in zip(margins, LEAST_MARGINS, strict=True)):
                break
        else:
            raise RuntimeError(f"{path.name} has no prompt without near ties for {run}")
        arrays[f"run_{k}_prompt"], arrays[f"run_{k}_ids"] = prompt, np.array(ids, np.int32)
        about["runs"].append({**run, "margins": [round(margin, 4) for margin in margins]})
    about["mask"] = mask
    about["settings"] = model.settings
    model.close()
    return arrays, about


def denoise(
    logits_of: LogitsOf, prompt: Sequence[int], mask: int, shifted: bool, *,
    count: int, steps: int, eps: float, block: int, algorithm: int,
) -> tuple[list[int], tuple[float, float]]:  # fmt: skip
    """The tokens after a prompt, and the closest decisions: by logits of tokens, by certainties of positions."""
    ids = np.array([*prompt, *[mask] * count])
    token_margin = place_margin = np.inf
    size = block or count
    blocks = range(len(prompt), len(ids), size)
    steps_of_block = steps // len(blocks)
    for first in blocks:
        last = min(first + size, len(ids))
        for step in range(steps_of_block):
            places = [p for p in range(first, last) if ids[p] == mask]
            wanted = transfers(step, steps_of_block, len(places), last - first, eps)
            if not wanted:
                continue
            rows = logits_of(ids.tolist())[[p - shifted for p in places]].astype(np.float64)
            sure, tokens, gaps = certainties(rows, mask, algorithm)
            order = np.argsort(-sure, kind="stable")
            chosen = order[:wanted]
            ids[np.array(places)[chosen]] = tokens[chosen]
            token_margin = min(token_margin, gaps[chosen].min())
            if wanted < len(places):
                place_margin = min(place_margin, sure[order[wanted - 1]] - sure[order[wanted]])
    return [int(i) for i in ids[len(prompt) :]], (float(token_margin), float(min(place_margin, 1.0)))


def transfers(step: int, steps: int, left: int, size: int, eps: float) -> int:
    """Tokens that a step fills in: by timesteps with an eps, else evenly over a block of `size` tokens."""
    if not eps:
        return size // steps + (step < size % steps)
    if step == steps - 1:
        return left
    one, rest = np.float32(1), np.float32(1) - np.float32(eps)
    t, s = (one - np.float32(i) / np.float32(steps) * rest for i in (step, step + 1))
    return int(np.float32(left) * (one - s / t))


def certainties(rows: np.ndarray, mask: int, algorithm: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(how sure each row's token is, the tokens, their leads in logits over the next ones)."""
    probabilities = softmax(rows)
    possible = rows.copy()
    possible[:, mask] = -np.inf
    tokens = possible.argmax(-1)
    ranked = np.sort(possible, axis=-1)
    gaps = ranked[:, -1] - ranked[:, -2]
    likeliest = np.sort(probabilities, axis=-1)[:, ::-1]
    if algorithm == CONFIDENCE:
        return probabilities[np.arange(len(rows)), tokens], tokens, gaps
    if algorithm == MARGIN:
        return likeliest[:, 0] - likeliest[:, 1], tokens, gaps
    parts = np.concatenate([likeliest[:, :LIKELIEST], likeliest[:, LIKELIEST:].sum(-1, keepdims=True)], axis=1)
    return (parts * np.log(parts)).sum(-1), tokens, gaps
