"""The sampling parameters of a request: OpenAI's, and llama.cpp's under its own names."""

from dataclasses import dataclass
from typing import Any

from app.openai.fields import Body, boolean, integer, number, whole, wrong_type, wrong_value
from py_engine.plan.sampling import Sampling
from py_engine.plan.shared import MOST_LOGPROBS

NAMES = frozenset(
    ["temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "presence_penalty", "frequency_penalty",
     "repeat_penalty", "repeat_last_n", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n",
     "dry_sequence_breakers", "xtc_probability", "xtc_threshold", "logit_bias", "n_probs"]
)  # fmt: skip
DRY_BREAKERS = ("\n", ":", '"', "*")  # llama.cpp's


@dataclass(frozen=True)
class Words:
    """What of the sampling parameters needs the vocabulary: chat.py turns it into token ids."""

    dry_breakers: tuple[str, ...] = ()
    biased: tuple[tuple[str, float], ...] = ()  # text -> bias of each of its tokens


def sampling(body: Body, logprobs: int) -> tuple[Sampling, Words]:
    """The parameters; `logprobs`: how many alternatives are wanted, -1 for none."""
    ids, words = _bias(body.get("logit_bias"))
    dry = number(body, "dry_multiplier", 0, 100, 0.0)
    made = Sampling(
        temperature=number(body, "temperature", 0, 2, 1.0),
        top_k=max(integer(body, "top_k", -1) or 0, 0),
        top_p=number(body, "top_p", 0, 1, 1.0),
        min_p=number(body, "min_p", 0, 1, 0.0),
        typical_p=number(body, "typical_p", 0, 1, 1.0),
        seed=integer(body, "seed", -(1 << 63), (1 << 64) - 1),
        presence_penalty=number(body, "presence_penalty", -2, 2, 0.0),
        frequency_penalty=number(body, "frequency_penalty", -2, 2, 0.0),
        repeat_penalty=number(body, "repeat_penalty", 0.01, 100, 1.0),
        repeat_last_n=_or(integer(body, "repeat_last_n", -1), 64),
        dry_multiplier=dry,
        dry_base=number(body, "dry_base", 1, 100, 1.75),
        dry_allowed_length=_or(integer(body, "dry_allowed_length", 1), 2),
        dry_penalty_last_n=_or(integer(body, "dry_penalty_last_n", -1), -1),
        xtc_probability=number(body, "xtc_probability", 0, 1, 0.0),
        xtc_threshold=number(body, "xtc_threshold", 0, 1, 0.1),
        logit_bias=ids,
        logprobs=logprobs,
    )
    return made, Words(_breakers(body.get("dry_sequence_breakers")) if dry else (), words)


def chat_logprobs(body: Body) -> int:
    """Of a chat: `logprobs` switches, `top_logprobs` counts; llama.cpp's `n_probs` does both."""
    wanted = boolean(body, "logprobs")
    top = integer(body, "top_logprobs", 0, MOST_LOGPROBS)
    if top and not wanted:
        raise wrong_value("top_logprobs is only allowed with logprobs: true.", "top_logprobs")
    return (top or 0) if wanted else _n_probs(body)


def completion_logprobs(body: Body) -> int:
    """Of a completion: `logprobs` counts; so does llama.cpp's `n_probs`."""
    top = integer(body, "logprobs", 0, MOST_LOGPROBS)
    return _n_probs(body) if top is None else top


def _n_probs(body: Body) -> int:
    return integer(body, "n_probs", 0, MOST_LOGPROBS) or -1


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _bias(value: Any) -> tuple[tuple[tuple[int, float], ...], tuple[tuple[str, float], ...]]:
    """OpenAI's {id: bias}, or llama.cpp's [[id or text, bias or false], ...], where false bans."""
    if value is None:
        return (), ()
    pairs: list[tuple[int | str | None, Any]]
    if isinstance(value, dict):
        pairs = [(_token(key), bias) for key, bias in value.items()]
    elif isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        pairs = [(key if isinstance(key, str) else whole(key), bias) for key, bias in value]
    else:
        raise wrong_type("logit_bias", "an object of token ids and biases", value)
    ids: list[tuple[int, float]] = []
    words: list[tuple[str, float]] = []
    for key, bias in pairs:
        if key is None or (isinstance(key, int) and key < 0):
            raise wrong_value("logit_bias has a key that is not a token id.", "logit_bias")
        strength = -100.0 if bias is False else bias
        if isinstance(strength, bool) or not isinstance(strength, int | float):
            raise wrong_type("logit_bias", "an object of token ids and biases", bias)
        if not -100 <= strength <= 100:
            raise wrong_value(f"logit_bias has {bias}; a bias must be from -100 to 100.", "logit_bias")
        if isinstance(key, int):
            ids.append((key, float(strength)))
        else:
            words.append((key, float(strength)))
    return tuple(ids), tuple(words)


def _token(key: str) -> int | None:
    return int(key) if key.isascii() and key.isdigit() else None


def _breakers(value: Any) -> tuple[str, ...]:
    if value is None:
        return DRY_BREAKERS
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise wrong_type("dry_sequence_breakers", "a list of strings", value)
    return tuple(v for v in value if v)
