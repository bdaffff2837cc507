"""The sampling parameters of a request: OpenAI's, and llama.cpp's under its own names."""

from dataclasses import dataclass
from typing import Any

from app.openai.fields import Body, boolean, integer, number, whole, wrong_type, wrong_value
from py_engine.plan.sampling import Parameter, Sampling, parameters
from py_engine.plan.shared import MOST_LOGPROBS

PARAMETERS = parameters()
NAMES = frozenset({*PARAMETERS, "dry_sequence_breakers", "logit_bias", "n_probs"})
DRY_BREAKERS = ("\n", ":", '"', "*")  # llama.cpp's


@dataclass(frozen=True)
class Words:
    """What of the sampling parameters needs the vocabulary: chat.py turns it into token ids."""

    dry_breakers: tuple[str, ...] = ()
    biased: tuple[tuple[str, float], ...] = ()  # text -> bias of each of its tokens


def sampling(body: Body, logprobs: int) -> tuple[Sampling, Words]:
    """The parameters; `logprobs`: how many alternatives are wanted, -1 for none."""
    ids, words = _bias(body.get("logit_bias"))
    given = {name: _value(body, name, parameter) for name, parameter in PARAMETERS.items()}
    made = Sampling(**given, logit_bias=ids, logprobs=logprobs)
    return made, Words(_breakers(body.get("dry_sequence_breakers")) if made.dry_multiplier else (), words)


def _value(body: Body, name: str, parameter: Parameter) -> Any:
    low, high, default = parameter.range.low, parameter.range.high, parameter.default
    if not parameter.integer:
        return number(body, name, low, high, float(default or 0))
    value = integer(body, name, int(low), int(high))
    return default if value is None else value


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
