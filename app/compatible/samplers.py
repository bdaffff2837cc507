"""Sampling parameters of llama.cpp and Ollama that OpenAI's requests do not have."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from app.openai.fields import Body, Json
from app.openai.requests import Request

R = TypeVar("R", bound=Request)

# Parameters that are not implemented: name -> the values that change nothing.
_NEUTRAL: dict[str, tuple[Json, ...]] = {
    "mirostat": (0,),
    "tfs_z": (1,),
    "adaptive_target": (-1,),
    "post_sampling_probs": (False,),
    "penalize_newline": (True, False),
    "min_keep": (0, 1),
    "n_indent": (0,),
    "n_discard": (0,),
    "n_cmpl": (1,),
}
_OF_NEUTRAL = frozenset(["mirostat_tau", "mirostat_eta", "adaptive_decay"])  # those are off
NEUTRAL_VALUES: Body = {
    name: values[0] for name, values in _NEUTRAL.items() if name not in ("tfs_z", "penalize_newline", "n_cmpl")
}
_OPENAI_MAX = 2  # OpenAI's largest temperature
_MAX = 1e6  # all tokens are equally likely


def changes_nothing(name: str, value: Json) -> bool:
    """Whether a parameter that is not implemented has no effect with this value."""
    return value is None or name in _OF_NEUTRAL or value in _NEUTRAL.get(name, ())


def with_any_temperature(checked: Callable[[Body, int], R], request: Body, max_stops: int) -> R:
    """What `checked` makes of a request whose temperature may be above OpenAI's limit, or below 0, which is greedy."""
    given = request.get("temperature")
    if isinstance(given, bool) or not isinstance(given, int | float) or 0 <= given <= _OPENAI_MAX:
        return checked(request, max_stops)
    if isinstance(given, float) and not math.isfinite(given):
        return checked(request, max_stops)
    made = checked(request | {"temperature": 0}, max_stops)
    temperature = float(min(max(given, 0), _MAX))  # an integer may be beyond all floats
    made.sampling = replace(made.sampling, temperature=temperature)
    return made
