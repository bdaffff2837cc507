"""Read the adapters of a request, in the form of llama.cpp's server: [{id, scale}, ...]."""

from app.openai.fields import Json, whole, wrong_type, wrong_value
from py_engine.plan.adapters import MAX_SCALE

Scales = tuple[tuple[int, float], ...]  # (adapter, scale)


def requested(value: Json, param: str = "lora") -> Scales | None:
    """The adapters and their scales; None where the request says nothing about adapters."""
    if value is None:
        return None
    if not isinstance(value, list):
        raise wrong_type(param, "a list of adapters, [{id, scale}]", value)
    return tuple(_one(entry, f"{param}[{i}]", param) for i, entry in enumerate(value))


def _one(entry: Json, where: str, param: str) -> tuple[int, float]:
    if not isinstance(entry, dict):
        raise wrong_type(where, "an object, {id, scale}", entry)
    if unknown := next((name for name in entry if name not in ("id", "scale")), None):
        raise wrong_value(f"{where}.{unknown} is unknown; there are id and scale.", param)
    number, scale = whole(entry.get("id")), entry.get("scale")
    if number is None or number < 0:
        raise wrong_value(f"{where}.id must be the number of an adapter, from 0 on.", param)
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not abs(scale) <= MAX_SCALE:
        raise wrong_value(f"{where}.scale must be a number from -{MAX_SCALE} to {MAX_SCALE}.", param)
    return number, float(scale)
