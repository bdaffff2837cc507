"""Temperatures of llama.cpp and Ollama, which OpenAI's requests cannot have."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from app.openai.fields import Body
from app.openai.llama_parameters import switched_off
from app.openai.requests import Request

R = TypeVar("R", bound=Request)

_OPENAI_MAX = 2  # OpenAI's largest temperature
_MAX = 1e6  # all tokens are equally likely


def with_any_temperature(checked: Callable[[Body, int], R], request: Body, max_stops: int) -> R:
    """What `checked` makes of a request whose temperature may be above OpenAI's limit, or below 0, which is greedy."""
    given = request.get("temperature")
    if "temperature" in switched_off(request):
        return checked(request | {"temperature": None}, max_stops)
    if isinstance(given, bool) or not isinstance(given, int | float) or 0 <= given <= _OPENAI_MAX:
        return checked(request, max_stops)
    if isinstance(given, float) and not math.isfinite(given):
        return checked(request, max_stops)
    made = checked(request | {"temperature": 0}, max_stops)
    temperature = float(min(max(given, 0), _MAX))  # an integer may be beyond all floats
    made.sampling = replace(made.sampling, temperature=temperature)
    return made
