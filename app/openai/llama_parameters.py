"""Parameters of llama.cpp's server that OpenAI's requests do not have: samplers, limits, and those without effect.

Source: tools/server/README.md of llama.cpp. /completion and the endpoints of OpenAI accept the same ones.
"""

from app.openai.fields import Body, Json, whole, wrong_type, wrong_value

# Parameters that OpenAI's endpoints and /completion read alike, beside those of sampling and of the answer's form.
PASSED_ON = frozenset(["stop", "ignore_eos", "cache_prompt", "lora", "samplers", "n", "n_cmpl"])
LIMITS = frozenset(["n_predict", "max_tokens"])  # of an answer's tokens; each endpoint has its own default
UNLIMITED = (1 << 31) - 1  # tokens: until the answer or the context ends
# Slots, limits of time, progress, where samplers run, and the like.
_NO_EFFECT = frozenset(["id_slot", "n_keep", "t_max_predict_ms", "timings_per_token", "return_progress",
                        "sse_ping_interval", "backend_sampling"])  # fmt: skip
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
    "n_cache_reuse": (0,),
}
# Further ones, which the settings in answers leave out.
_NEUTRAL_UNLISTED: dict[str, tuple[Json, ...]] = {
    "reasoning_budget_tokens": (-1,),
    "reasoning_control": (False,),
    "parse_tool_calls": (True,),
    "return_tokens": (False,),
    "grammar_lazy": (False,),
    "echo": (False,),
}
NOT_IMPLEMENTED = frozenset({*_NEUTRAL, *_NEUTRAL_UNLISTED})
_OF_NEUTRAL = frozenset(["mirostat_tau", "mirostat_eta", "adaptive_decay"])  # of parameters that are off
NEUTRAL_VALUES: Body = {
    name: values[0] for name, values in _NEUTRAL.items() if name not in ("tfs_z", "penalize_newline", "n_cache_reuse")
}
# The names of samplers -> the parameters that switch each off.
SAMPLERS: dict[str, Body] = {
    "penalties": {"repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0},
    "dry": {"dry_multiplier": 0},
    "top_n_sigma": {"top_n_sigma": -1},
    "top_k": {"top_k": 0},
    "typ_p": {"typical_p": 1},
    "top_p": {"top_p": 1},
    "min_p": {"min_p": 0},
    "xtc": {"xtc_probability": 0},
    "temperature": {"temperature": 1, "dynatemp_range": 0},
}
_ALIASES = {"typical_p": "typ_p", "typical": "typ_p", "temp": "temperature"}  # llama.cpp's other names of samplers


def same(value: Json, other: Json) -> bool:
    """Whether two values are equal; true does not equal 1."""
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def changes_nothing(name: str, value: Json) -> bool:
    """Whether a parameter that is not implemented has no effect with this value."""
    neutrals = _NEUTRAL.get(name) or _NEUTRAL_UNLISTED.get(name, ())
    return value is None or name in _OF_NEUTRAL or any(same(value, neutral) for neutral in neutrals)


def has_no_effect(name: str, value: Json) -> bool:
    """Whether a parameter of llama.cpp never has an effect here, or has none with this value."""
    return name in _NO_EFFECT or name.startswith("speculative.") or changes_nothing(name, value)


def token_limit(given: Json, name: str = "n_predict") -> int | None:
    """The most tokens to generate; None where it is absent. -1 is UNLIMITED, 0 is one token, as in llama.cpp."""
    if given is None:
        return None
    found = whole(given)
    if found is None:
        raise wrong_type(name, "an integer", given)
    if not -1 <= found <= UNLIMITED:
        raise wrong_value(f"{name} is {found}; it must be from -1 to {UNLIMITED}.", name)
    return UNLIMITED if found < 0 else max(1, found)


def switched_off(body: Body) -> Body:
    """The parameters that switch off what the list `samplers` leaves out. The list's order has no effect."""
    samplers = body.get("samplers")
    if samplers is None:
        return {}
    if not isinstance(samplers, list) or not all(isinstance(name, str) for name in samplers):
        raise wrong_type("samplers", "a list of names", samplers)
    names = {_ALIASES.get(name, name) for name in samplers}
    for name in names - SAMPLERS.keys():
        raise wrong_value(f"samplers has {name!r}; there are {', '.join(SAMPLERS)}.", "samplers")
    return {name: value for left_out in SAMPLERS.keys() - names for name, value in SAMPLERS[left_out].items()}
