"""The sampling kernels with numpy: twins of sample*.wgsl, advance.wgsl and logprobs.wgsl, which define them."""

from __future__ import annotations

import numpy as np

from py_engine.cpu.call import Array, Call
from py_engine.plan.sampling import FIELDS
from py_engine.plan.shared_constants import BANNED, LEAST_TEMPERATURE, MAX_LOGPROBS, MAX_MATCH, SHORT_BATCH

SETTINGS = np.dtype([(name, np.float32 if kind == "f32" else np.uint32) for name, kind in FIELDS.items()])


def settings(c: Call, seq: int | None = None) -> np.void:
    """The Sampling struct of a sequence, as a numpy record."""
    return settings_of(c["sampling"][c.seq if seq is None else seq])


def settings_of(words: Array) -> np.void:
    """A Sampling struct's words as a numpy record."""
    return np.frombuffer(words.tobytes(), SETTINGS, 1)[0]


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


def gumbel(seed: int, pos: int, tokens: Array) -> Array:
    """Gumbel noise of tokens, float32."""
    u = uniform(hashed(seed, pos, tokens.astype(np.uint32)))
    small = u * (1 + u * (np.float32(0.5) + u / np.float32(3)))
    return -np.log(np.where(u < 0.01, small, -np.log(1 - u)))


def _logits(c: Call, m: int) -> Array:
    return c["logits"].reshape(-1, c.consts["stride"])[m, : c.consts["vocab"]]


def _wanted(c: Call) -> list[tuple[int, int, int]]:
    """The rows to sample from: (row, sequence, position of the sampled token)."""
    rows = c["rows"][: min(c.n, len(c["best"]))]
    return [(m, int(seq), int(at)) for m, (wanted, seq, at, _) in enumerate(rows) if wanted]


def _write_best(c: Call, logits: Array, best: Array) -> None:
    """Write the bits and the index of the largest logit of each partition."""
    partition = c.params["PARTITION"]
    for i, first in enumerate(range(0, len(logits), partition)):
        index = first + int(logits[first : first + partition].argmax())
        best[i] = logits[index : index + 1].view(np.uint32)[0], index


def sample_best(c: Call) -> None:
    for m in range(min(c.n, len(c["best"]))):
        many = c.params["STATE_PER_TOKEN"]
        c["rows"][m] = 1, c.states[m, 3], c.states[m, 0] + (1 if many else c.n), 0
        _write_best(c, _logits(c, m), c["best"][m])


def sample_shape(c: Call) -> None:
    vocab, words = c.consts["vocab"], c.params["BIT_WORDS"]
    for m in range(min(c.n, len(c["best"]))):
        seq, at = int(c.states[m, 3]), int(c.states[m, 0])
        s, rules = settings(c, seq), c["rules"][seq]
        if c.params["MASKED"]:
            allowed = bits(rules[:words], vocab)
            wanted = bool(s["masked"]) and not allowed[c["tokens"][seq, at]]
        else:
            allowed, wanted = np.ones(vocab, bool), True
            at += 1 if c.params["STATE_PER_TOKEN"] else c.n
        c["rows"][m] = wanted, seq, at, c.params["MASKED"]
        if wanted:
            x = shaped(_logits(c, m), c["tokens"][seq, :at].astype(np.int64), s, rules[words:], words)
            c["shaped"][m, :vocab] = np.where(allowed, x, np.float32(BANNED))
            _write_best(c, c["shaped"][m, :vocab], c["best"][m])


def shaped(logits: Array, history: Array, s: np.void, rules: Array, words: int) -> Array:
    """The logits after bias, penalties and DRY. `rules`: a sequence's, from the sequence breakers on."""
    vocab, end = len(logits), len(history)
    pairs = rules[words : words + 2 * int(s["biases"])].reshape(-1, 2)
    bias = np.zeros(vocab, np.float32)
    bias[pairs[:, 0]] = np.ascontiguousarray(pairs[:, 1]).view(np.float32)
    x = logits + bias
    recent = _tokens_of(history[end - min(end, int(s["repeat_last_n"])) :], vocab)
    seen = np.flatnonzero(np.bincount(recent))  # np.unique would fetch numpy.ma, and all of numpy with it
    x[seen] *= np.where(x[seen] > 0, 1 / s["repeat_penalty"], s["repeat_penalty"])
    counts = np.bincount(_tokens_of(history[int(s["answer"]) :], vocab), minlength=vocab)[:vocab].astype(np.float32)
    x -= counts * s["frequency_penalty"] + np.where(counts > 0, s["presence_penalty"], np.float32(0))
    if s["dry_multiplier"] > 0:
        for token, length in repeats(history, s, bits(rules[:words], vocab)).items():
            x[token] -= s["dry_multiplier"] * s["dry_base"] ** np.float32(length - int(s["dry_allowed_length"]))
    return np.where(bias <= -100, np.float32(BANNED), np.maximum(x, np.float32(BANNED)))


def _tokens_of(history: Array, vocab: int) -> Array:
    """The ids that are of the vocabulary, not of media."""
    return history[history < vocab]


def repeats(history: Array, s: np.void, breakers: Array) -> dict[int, int]:
    """Token -> length of the longest repetition that it would continue, if at least dry_allowed_length (DRY)."""
    history = history[len(history) - min(len(history), int(s["dry_penalty_last_n"])) :]
    breaks = np.append(breakers, True)[np.minimum(history, len(breakers))]  # media break a sequence, too
    broken = np.flatnonzero(breaks)
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
        if not breaks[i + 1]:
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
        keep &= logits > np.float32(BANNED)  # a threshold of 0 is reached by every token that can be sampled
        high = keep & (_probabilities(logits, keep) >= s["xtc_threshold"])
        if high.any():
            keep &= logits <= logits[high].min()
    return keep


def temperature_of(logits: Array, keep: Array, s: np.void) -> np.float32:
    """The temperature of the tokens in `keep`, which follows their entropy where there is a dynatemp_range."""
    keep = keep & (logits > np.float32(BANNED))
    if s["dynatemp_range"] <= 0 or keep.sum() < 2:
        return np.float32(s["temperature"])
    p = _probabilities(logits, keep)[keep]
    entropy = -(p * np.log(np.maximum(p, 1e-300))).sum() / np.log(len(p))
    least, most = max(s["temperature"] - s["dynatemp_range"], 0), s["temperature"] + s["dynatemp_range"]
    found = least + (most - least) * min(max(entropy, 1e-30), 1) ** float(s["dynatemp_exponent"])
    return np.float32(found if found >= LEAST_TEMPERATURE else 0)


def _probabilities(logits: Array, keep: Array) -> Array:
    """Softmax over the tokens in `keep`, float64; 0 for the others."""
    e = np.where(keep, np.exp(logits.astype(np.float64) - logits[keep].max()), 0)
    return e / e.sum()


def _cutoff(order: Array, p: Array, keep: Array, mass: float) -> np.floating:
    """The `order` at which the cumulated probability of the tokens in `keep`, ascending by `order`, reaches `mass`."""
    index = np.flatnonzero(keep)
    index = index[np.argsort(order[index])]
    last = int(np.searchsorted(np.cumsum(p[index]), mass * p[index].sum()))
    return order[index[min(last, len(index) - 1)]]


def is_greedy(s: np.void) -> bool:
    noisy = s["temperature"] > 0 or s["dynatemp_range"] > 0
    return not noisy and bool(s["xtc_probability"] <= 0 and s["typical_p"] >= 1)


def nothing(c: Call) -> None:
    """The twin of the kernels whose results numpy's sort replaces."""


def sample_draw(c: Call) -> None:
    for m, seq, at in _wanted(c):
        s = settings(c, seq)
        if is_greedy(s):
            continue
        logits, position = _logits(c, m), at + int(s["shifted"])
        logits = np.where(np.isnan(logits), np.float32(-np.inf), logits)
        if logits.max() <= BANNED:  # the filters need a token
            _write_best(c, logits, c["drawn"][m])
            continue
        keep = filtered(logits, s, position)
        passed, noisy = np.flatnonzero(keep), np.full(len(logits), -np.inf, np.float32)
        noisy[passed] = logits[passed] - logits.max()
        if (temperature := temperature_of(logits, keep, s)) > 0:
            noisy[passed] = noisy[passed] / temperature + gumbel(s["seed"], position, passed)
        _write_best(c, noisy, c["drawn"][m])


def sample(c: Call) -> None:
    for m, seq, at in _wanted(c):
        greedy = c.params["GREEDY"] or is_greedy(settings(c, seq))
        found = c["best" if greedy else "drawn"][m]
        token = found[np.ascontiguousarray(found[:, 0]).view(np.float32).argmax(), 1]
        if c.params["CHOSEN"]:
            c["chosen"][m] = token
            continue
        c["tokens"][seq, at] = token
        c.states[m, 0] = at
        c.states[m, 2] += c["rows"][m, 3]
        if not c.params["STATE_PER_TOKEN"]:
            c.states[m, 1] = 1


def advance(c: Call) -> None:
    begun = 0
    for n in _rows_of_sequences(c):
        pos, seq, chosen = int(c.states[begun, 0]), int(c.states[begun, 3]), c["chosen"][begun : begun + n]
        tokens, drafting = c["tokens"][seq], c["drafting"][seq]
        accepted = 0
        while accepted < n - 1 and tokens[pos + 1 + accepted] == chosen[accepted]:
            accepted += 1
        last, count = pos + 1 + accepted, 0
        tokens[last] = chosen[accepted]
        if n > 1:
            drafting[1] = 2 * (n - 1) if accepted == n - 1 else accepted + 1
        match = _find_match(tokens[: last + 1], c.consts["min_match"])
        if match is not None:
            count = min(c.params["DRAFTS"], max(int(drafting[1]), 1), max(0, int(drafting[0]) - last - 1))
            for m in range(1, count + 1):  # in order: after `last` come the draft's own tokens
                tokens[last + m] = tokens[match + m]
        drafting[2:4] = last, count
        begun += n


def _rows_of_sequences(c: Call) -> list[int]:
    """How many consecutive rows of a small batch each of its sequences has."""
    sequences = c.states[: c.n, 3].tolist()
    begins = [m for m in range(c.n) if m == 0 or sequences[m - 1] != sequences[m]]
    return [end - begin for begin, end in zip(begins, [*begins[1:], c.n], strict=True)]


def draft_rows(c: Call) -> None:
    ends = np.cumsum(_rows_of_sequences(c))
    sequences = [int(seq) for seq in c.states[ends - 1, 3]]
    found = [int(c["drafting"][seq, 3]) for seq in sequences]
    given = [0] * len(sequences)
    turns = [i for turn in range(SHORT_BATCH) for i, count in enumerate(found) if count > turn]
    for i in turns[: SHORT_BATCH - len(sequences)]:
        given[i] += 1
    rows = [
        (int(c["drafting"][seq, 2]) + m, seq) for seq, n in zip(sequences, given, strict=True) for m in range(n + 1)
    ]
    c.states[: len(rows), 0], c.states[: len(rows), 3] = zip(*rows, strict=True)
    c.states[0, 1] = len(rows)


def draft_states(c: Call) -> None:
    states, n, stage = c.states, c.n, c.params["STAGE"]
    if stage == "newest":
        states[0, 1] = n // 2
        return
    if stage == "masked":
        newest = c["drafting"][states[:n, 3].astype(np.int64), 2]
        masked = states[:n, 0] > newest
        states[:n, 0] -= masked
        states[0, 1] = masked.sum()
        return
    for m in range(n):
        drafting = c["drafting"][int(states[m, 3])]
        if stage == "end":
            drafting[3] = states[m, 0] - drafting[2]
        else:
            drafting[2] = states[m, 0]
            if anchor := c.params.get("ANCHOR", 0):
                c.tables[anchor + int(states[m, 3])] = states[m, 0]
    if stage == "block":
        drafts = int(c.consts["drafts"])
        newest, places = states[:n].copy(), 1 + np.arange(drafts, dtype=np.uint32)
        for m, (pos, _, _, seq) in enumerate(newest):
            rows = slice(m * drafts, (m + 1) * drafts)
            states[rows, 0], states[rows, 3] = pos + places, seq
            c["tokens"][seq, pos + places] = c.params["MASK"]
        states[n * drafts : n * (1 + drafts), [0, 3]] = newest[:, [0, 3]]
        states[0, 1] = n * (1 + drafts)
    if stage == "pairs" and (n > 1 or c.pos):
        newest = states[:n, 0].copy()
        before = np.maximum(newest, 1) - 1
        states[: 2 * n, 0] = np.concatenate([before, newest] if n == 1 else [newest, before])
        states[n : 2 * n, 3], states[0, 1] = states[:n, 3], 2 * n


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
    for m in range(min(c.n, len(c["partial"]))):
        seq, at = int(c.states[m, 3]), int(c.states[m, 0])
        logits = _logits(c, m).astype(np.float64)
        top = logits.max()
        found = (logits - top - np.log(np.exp(logits - top).sum())).astype(np.float32)
        order = np.argsort(-logits, kind="stable")[: min(int(settings(c, seq)["logprobs"]), MAX_LOGPROBS)]
        ids = np.concatenate([c["tokens"][seq, at : at + 1].astype(np.int64), order])
        row = c["logprobs"][seq, at % c.params["LOGPROB_ROWS"]]
        row[1:, 0] = 0xFFFFFFFF
        row[: len(ids), 0], row[: len(ids), 1] = ids, found[ids].view(np.uint32)
