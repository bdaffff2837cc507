"""The sampling kernels with numpy: twins of sample*.wgsl and logprobs.wgsl, which hold the definitions."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.plan.sampling import FIELDS
from py_engine.plan.shared import BANNED, MAX_LOGPROBS, MAX_MATCH

SETTINGS = np.dtype([(name, np.float32 if kind == "f32" else np.uint32) for name, kind in FIELDS.items()])


def settings(c: Call, seq: int | None = None) -> np.void:
    """The Sampling struct of a sequence, as a numpy record."""
    return np.frombuffer(c["sampling"][c.seq if seq is None else seq].tobytes(), SETTINGS, 1)[0]


def bits(words: Array, count: int) -> Array:
    """Unpack bits of u32 words, lowest first: bool (count,)."""
    return np.unpackbits(words.view(np.uint8), count=count, bitorder="little").astype(bool)


def hashed(seed: int, pos: int, tokens: Array) -> Array:
    """Random bits of tokens (uint32) at a position: a PCG hash."""
    h = np.full(len(tokens), seed, np.uint32)
    for word in (np.uint32(0x9E3779B9), np.uint32(pos), tokens):
        h = (h ^ word) * np.uint32(747796405) + np.uint32(2891336453)
        h = ((h >> ((h >> np.uint32(28)) + np.uint32(4))) ^ h) * np.uint32(277803737)
        h = (h >> np.uint32(22)) ^ h
    return h


def uniform(random_bits: Array) -> Array:
    """Map random bits to floats between 0 and 1, both excluded."""
    return np.minimum((random_bits.astype(np.float32) + np.float32(0.5)) * np.float32(2**-32), np.float32(0.99999994))


def gumbel(seed: int, pos: int, vocab: int) -> Array:
    """Gumbel noise of every token, float32 (vocab,)."""
    u = uniform(hashed(seed, pos, np.arange(vocab, dtype=np.uint32)))
    small = u * (1 + u * (np.float32(0.5) + u / np.float32(3)))
    return -np.log(np.where(u < 0.01, small, -np.log(1 - u)))


def _best(c: Call, logits: Array, best: Array) -> None:
    partition = c.params["PARTITION"]
    for i, first in enumerate(range(0, len(logits), partition)):
        index = first + int(logits[first : first + partition].argmax())
        best[i] = logits[index : index + 1].view(np.uint32)[0], index


def sample_best(c: Call) -> None:
    best = c["best"].reshape(-1, c.consts["partitions"], 2)
    for logits, to in zip(c["logits"].reshape(-1, c.consts["stride"]), best, strict=True):
        _best(c, logits[: c.consts["vocab"]], to)


def sample_shape(c: Call) -> None:
    s, vocab, end = settings(c), c.consts["vocab"], c.pos + c.n
    history = c["tokens"][c.seq, :end].astype(np.int64)
    bias = c["bias"][:vocab]
    x = c["logits"][:vocab] + bias
    seen = np.unique(history[end - min(end, int(s["repeat_last_n"])) :])
    x[seen] *= np.where(x[seen] > 0, 1 / s["repeat_penalty"], s["repeat_penalty"])
    counts = np.bincount(history[int(s["answer"]) :], minlength=vocab)[:vocab].astype(np.float32)
    x -= counts * s["frequency_penalty"] + np.where(counts > 0, s["presence_penalty"], np.float32(0))
    if s["dry_multiplier"] > 0:
        for token, length in repeats(history, s, bits(c["breakers"], vocab)).items():
            x[token] -= s["dry_multiplier"] * s["dry_base"] ** np.float32(length - int(s["dry_allowed_length"]))
    c["shaped"][:vocab] = np.where(bias <= -100, np.float32(BANNED), np.maximum(x, np.float32(BANNED)))
    _best(c, c["shaped"][:vocab], c["best"])


def repeats(history: Array, s: np.void, breakers: Array) -> dict[int, int]:
    """Token -> length of the longest repetition that it would continue, if at least dry_allowed_length (DRY)."""
    history = history[len(history) - min(len(history), int(s["dry_penalty_last_n"])) :]
    broken = np.flatnonzero(breakers[history])
    longest = min(len(history) - (int(broken[-1]) + 1 if len(broken) else 0), int(s["dry_longest"]))
    allowed = int(s["dry_allowed_length"])
    if longest < allowed:
        return {}
    # lengths[i]: how many tokens up to i equal the last ones, computed for all i at once
    ends = np.arange(len(history) - 1)
    lengths, alive = np.zeros(len(ends), np.int64), np.ones(len(ends), bool)
    for k in range(longest):
        alive &= ends >= k
        alive[alive] = history[ends[alive] - k] == history[-1 - k]
        if not alive.any():
            break
        lengths[alive] += 1
    found: dict[int, int] = {}
    for i in np.flatnonzero(lengths >= allowed):
        token = int(history[i + 1])
        if not breakers[token]:
            found[token] = max(found.get(token, 0), int(lengths[i]))
    return found


def filtered(logits: Array, s: np.void, at: int) -> Array:
    """The tokens that pass all filters, bool (vocab,)."""
    keep = np.ones(len(logits), bool)
    if s["top_n_sigma"] > 0:
        deviation = logits[logits > np.float32(BANNED)].std(dtype=np.float64)
        keep = logits >= logits.max() - s["top_n_sigma"] * deviation
    if 0 < s["top_k"] < len(logits):
        keep &= logits >= np.partition(logits, -int(s["top_k"]))[-int(s["top_k"])]
    if s["typical_p"] < 1:
        p = _probabilities(logits, keep)
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.where(p > 0, p * np.log(p), 0).sum()
            distance = np.abs(-np.log(p) - entropy)
        keep &= distance <= _cutoff(distance, p, keep, float(s["typical_p"]))
    if s["top_p"] < 1:
        keep &= -logits <= _cutoff(-logits, _probabilities(logits, keep), keep, float(s["top_p"]))
    if s["min_p"] > 0:
        keep &= logits >= logits[keep].max() + np.log(s["min_p"])
    if (
        s["xtc_probability"] > 0
        and uniform(hashed(s["seed"], at, np.full(1, -1, np.int32).view(np.uint32)))[0] <= (s["xtc_probability"])
    ):
        high = keep & (_probabilities(logits, keep) >= s["xtc_threshold"])
        if high.any():
            keep &= logits <= logits[high].min()
    return keep


def _probabilities(logits: Array, keep: Array) -> Array:
    """Softmax over the tokens in `keep`, float64; 0 for the others."""
    e = np.where(keep, np.exp(logits.astype(np.float64) - logits[keep].max()), 0)
    return e / e.sum()


def _cutoff(order: Array, p: Array, keep: Array, mass: float) -> np.floating:
    """The `order` at which the cumulated probability of the tokens in `keep`, ascending by `order`, reaches `mass`."""
    index = np.flatnonzero(keep)
    index = index[np.argsort(order[index], kind="stable")]
    last = int(np.searchsorted(np.cumsum(p[index]), mass * p[index].sum()))
    return order[index[min(last, len(index) - 1)]]


def draw(logits: Array, s: np.void, at: int) -> int:
    """Sample a token: the maximum of the filtered logits plus Gumbel noise."""
    temperature = s["temperature"]
    if temperature > 0:
        noisy = (logits - logits.max()) / temperature + gumbel(s["seed"], at, len(logits))
    else:
        noisy = logits
    return int(np.where(filtered(logits, s, at), noisy, -np.inf).argmax())


def sample(c: Call) -> None:
    if c.params["STATE_PER_TOKEN"]:
        for m, (pos, seq) in enumerate(zip(c.positions, c.sequences, strict=True)):
            s = settings(c, int(seq))
            c["chosen"][m] = draw(c["logits"][m, : c.consts["vocab"]], s, int(pos) + 1 + int(s["shifted"]))
        return
    s, logits = settings(c), c["logits"][: c.consts["vocab"]]
    tokens = c["tokens"][c.seq]
    at = c.pos if c.params["MASKED"] else c.pos + c.n
    if c.params["MASKED"]:
        allowed = bits(c["mask"], len(logits))
        if allowed[tokens[at]]:
            return
        logits = np.where(allowed, logits, np.float32(BANNED))
        c.states[0, 2] += 1
    tokens[at] = draw(logits, s, at + int(s["shifted"]))
    c.states[0, :2] = at, 1


def advance(c: Call) -> None:
    states, chosen, n = c.states, c["chosen"], c.n
    if not c.params["DRAFTS"]:
        states[:n, 0] += 1
        c["tokens"][states[:n, 3], states[:n, 0]] = chosen[:n]
        return
    tokens, drafting = c["tokens"][c.seq], c["drafting"]
    accepted = 0
    while accepted < n - 1 and tokens[c.pos + 1 + accepted] == chosen[accepted]:
        accepted += 1
    last = c.pos + 1 + accepted
    tokens[last] = chosen[accepted]
    if n > 1:
        drafting[1] = 2 * (n - 1) if accepted == n - 1 else accepted + 1
    match, n = _find_match(tokens[: last + 1], c.consts["min_match"]), 1
    if match is not None:
        n += min(last - match, c.params["DRAFTS"], max(int(drafting[1]), 1), max(0, int(drafting[0]) - last - 1))
        tokens[last + 1 : last + n] = tokens[match + 1 : match + n]
    states[:n, 0], states[:n, 3], states[0, 1] = np.arange(last, last + n), c.seq, n


def _find_match(tokens: Array, least: int) -> int | None:
    """The end of the longest earlier match of the last tokens (the latest, if several), of at least `least` tokens."""
    ends = np.arange(len(tokens) - 1)
    lengths, alive = np.zeros(len(ends), np.int64), np.ones(len(ends), bool)
    for k in range(MAX_MATCH):
        alive &= ends >= k
        if not alive.any():
            break
        alive[alive] = tokens[ends[alive] - k] == tokens[-1 - k]
        lengths[alive] += 1
    if not len(ends) or lengths.max() < least:
        return None
    return int(np.flatnonzero(lengths == lengths.max())[-1])


def logprobs(c: Call) -> None:
    logits = c["logits"][: c.consts["vocab"]].astype(np.float64)
    top = logits.max()
    found = (logits - top - np.log(np.exp(logits - top).sum())).astype(np.float32)
    order = np.argsort(-logits, kind="stable")[: min(int(settings(c)["logprobs"]), MAX_LOGPROBS)]
    ids = np.concatenate([c["tokens"][c.seq, c.pos : c.pos + 1].astype(np.int64), order])
    row = c["rows"][c.pos % c.params["LOGPROB_ROWS"]]
    row[1:, 0] = 0xFFFFFFFF
    row[: len(ids), 0], row[: len(ids), 1] = ids, found[ids].view(np.uint32)
