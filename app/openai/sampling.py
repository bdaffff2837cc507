"""Read the sampling parameters of a request: OpenAI's, and llama.cpp's under its names."""

import re
from dataclasses import dataclass

from app.openai.fields import Body, Json, boolean, integer, number, whole, wrong_type, wrong_value
from py_engine.errors import WispError
from py_engine.plan.sampling import Parameter, Sampling, parameters
from py_engine.plan.shared_constants import MAX_LOGPROBS

PARAMETERS = parameters()
NAMES = frozenset({*PARAMETERS, "dry_sequence_breakers", "logit_bias", "n_probs", "repetition_penalty"})
MAX_BREAKERS, MAX_BREAKER = 32, 40  # strings, and characters of one
_INTEGER = re.compile("-?[0-9]+")
RANDOM_SEED = -1  # as in llama.cpp and vLLM: each answer has a seed of its own
DRY_BREAKERS = ("\n", ":", '"', "*")  # llama.cpp's default


@dataclass(frozen=True)
class TextParameters:
    """The sampling parameters given as text. app/answers turns them into token ids with the model's vocabulary."""

    dry_breakers: tuple[str, ...] = ()
    logit_bias: tuple[tuple[str, float], ...] = ()  # (text, bias of each of its tokens)


def sampling(body: Body, logprobs: int) -> tuple[Sampling, TextParameters]:
    """Return the parameters, and those given as text. `logprobs`: alternatives per token, -1: no logprobs."""
    ids, texts = _bias(body.get("logit_bias"))
    given = {name: _value(body, name, PARAMETERS[name]) for name in PARAMETERS if body.get(name) is not None}
    if body.get("repetition_penalty") is not None:
        # vLLM's: of all tokens before, where repeat_penalty has the last ones.
        found = _value(body, "repetition_penalty", PARAMETERS["repeat_penalty"])
        given = {"repeat_penalty": found, "repeat_last_n": -1} | given
    if given.get("seed") == RANDOM_SEED:
        del given["seed"]
    made = Sampling(**given, logit_bias=ids, logprobs=logprobs)
    breakers = _breakers(body.get("dry_sequence_breakers"))
    return made, TextParameters(breakers if made.dry_multiplier else (), texts)


def _value(body: Body, name: str, parameter: Parameter) -> Json:
    """Read one parameter, which is present."""
    low, high = parameter.range.low, parameter.range.high
    return integer(body, name, int(low), int(high)) if parameter.integer else number(body, name, low, high, 0.0)


def chat_logprobs(body: Body) -> int:
    """Read a chat's `logprobs` (a switch) and `top_logprobs` (a count), or llama.cpp's `n_probs` (both)."""
    wanted = boolean(body, "logprobs")
    top = integer(body, "top_logprobs", 0, MAX_LOGPROBS)
    if top and not wanted:
        raise wrong_value("top_logprobs is only allowed with logprobs: true.", "top_logprobs")
    return (top or 0) if wanted else _n_probs(body)


def completion_logprobs(body: Body) -> int:
    """Read a completion's `logprobs`, a count, or llama.cpp's `n_probs`."""
    top = integer(body, "logprobs", 0, MAX_LOGPROBS)
    return _n_probs(body) if top is None else top


def _n_probs(body: Body) -> int:
    return integer(body, "n_probs", 0, MAX_LOGPROBS) or -1


def _bias(value: Json) -> tuple[tuple[tuple[int, float], ...], tuple[tuple[str, float], ...]]:
    """Read OpenAI's {id: bias}, or llama.cpp's {text: bias} and [[id or text, bias], ...]; false bans a token."""
    if value is None:
        return (), ()
    pairs: list[tuple[int | str | None, Json]]
    if isinstance(value, dict):
        pairs = [(_token(key), bias) for key, bias in value.items()]
    elif isinstance(value, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in value):
        pairs = [(key if isinstance(key, str) else whole(key), bias) for key, bias in value]
    else:
        raise wrong_type("logit_bias", "an object of token ids and biases, or a list of such pairs", value)
    ids: list[tuple[int, float]] = []
    texts: list[tuple[str, float]] = []
    for key, bias in pairs:
        if key is None or (isinstance(key, int) and key < 0):
            raise wrong_value("logit_bias has a key that is not a token id, a non-negative integer.", "logit_bias")
        strength = -100.0 if bias is False else bias
        if isinstance(strength, bool) or not isinstance(strength, int | float):
            what = f"logit_bias has {bias!r}; a bias must be a number, or false."
            raise WispError(what, "invalid_type", param="logit_bias")
        if not -100 <= strength <= 100:
            raise wrong_value(f"logit_bias has {bias}; a bias must be from -100 to 100.", "logit_bias")
        if isinstance(key, int):
            ids.append((key, float(strength)))
        else:
            texts.append((key, float(strength)))
    return tuple(ids), tuple(texts)


def _token(key: str) -> int | str | None:
    """A key of an object: the id of a token, or a text. None for a number that is no id."""
    if not _INTEGER.fullmatch(key):
        return key
    return int(key) if key.isdigit() and len(key) < 20 else None


def _breakers(value: Json) -> tuple[str, ...]:
    if value is None:
        return DRY_BREAKERS
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise wrong_type("dry_sequence_breakers", "a list of strings", value)
    if len(value) > MAX_BREAKERS or any(len(v) > MAX_BREAKER for v in value):
        what = f"at most {MAX_BREAKERS} strings of {MAX_BREAKER} characters are allowed"
        raise wrong_value(f"dry_sequence_breakers is too long: {what}.", "dry_sequence_breakers")
    return tuple(dict.fromkeys(v for v in value if v))
