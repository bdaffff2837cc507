"""The LoRA adapters and control vectors of a load request, and their scales in requests."""

from collections.abc import Sequence
from typing import Any

from py_engine.errors import WispError
from py_engine.options import AdapterOptions
from py_engine.plan.adapters import MAX_SCALE

MAX_ADAPTERS = 64  # beside one model
_FIELDS = ("scale", "layers")


def adapter_options(given: Any, count: int) -> tuple[AdapterOptions, ...]:
    """Check the field `lora` of a load request, a list with an object for each of `count` files."""
    if given is None:
        given = [{}] * count
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise WispError("lora must be a list of adapters: [{ model, scale }].", "invalid_type", param="lora")
    if len(given) != count or count > MAX_ADAPTERS:
        raise WispError(
            f"lora must have a file for each adapter, {MAX_ADAPTERS} at most.", "invalid_value", param="lora"
        )
    return tuple(_options(one, f"lora[{i}]") for i, one in enumerate(given))


def _options(given: dict[str, Any], where: str) -> AdapterOptions:
    if unknown := next((name for name in given if name not in _FIELDS), None):
        raise WispError(
            f"{where}.{unknown} is unknown; there are model, {', '.join(_FIELDS)}.", "invalid_value", param="lora"
        )
    scale, layers = given.get("scale"), given.get("layers")
    if layers is not None and not _is_range(layers):
        raise WispError(
            f"{where}.layers must be the first and the last layer of a control vector, such as [8, 20].",
            "invalid_value",
            param="lora",
        )
    return AdapterOptions(
        1.0 if scale is None else checked_scale(scale, f"{where}.scale"), tuple(layers) if layers else None
    )


def _is_range(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(n, int | float) and not isinstance(n, bool) and n == int(n) and n >= 1 for n in value)
        and value[0] <= value[1]
    )


def checked_scale(value: Any, where: str) -> float:
    """A scale as a number. WispError invalid_type or invalid_value."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WispError(f"{where} must be a number.", "invalid_type", param="lora")
    if not abs(value) <= MAX_SCALE:  # NaN is not
        raise WispError(
            f"{where} is {value}; it must be from -{MAX_SCALE} to {MAX_SCALE}.", "invalid_value", param="lora"
        )
    return float(value)


class Adapters:
    """The adapters of one loaded model, in the order in which its load named them. `engine`: has their scales."""

    def __init__(self, parts: Sequence[Any], engine: Any) -> None:
        self._paths, self._engine = [_path(part) for part in parts], engine

    def listing(self) -> list[dict[str, Any]]:
        """What llama.cpp's GET /lora-adapters answers."""
        scales = self._engine.scales if self._engine is not None else ()
        return [{"id": i, "path": path, "scale": scales[i]} for i, path in enumerate(self._paths)]

    def scales(self, wanted: Sequence[tuple[int, float]] | None) -> tuple[float, ...] | None:
        """The scale of each adapter: 0 for those that the request does not name. None: the default scales."""
        if wanted is None:
            return None
        scales = [0.0] * len(self._paths)
        for number, scale in wanted:
            if number >= len(scales):
                there_are = f"they are 0 to {len(scales) - 1}" if scales else "it was loaded without any"
                raise WispError(f"The model has no adapter {number}: {there_are}.", "invalid_value", param="lora")
            scales[number] = scale
        return tuple(scales)

    def set_default(self, wanted: Sequence[tuple[int, float]]) -> None:
        """Set the scales of requests that give none."""
        self._engine.scales = self.scales(wanted)


def _path(part: Any) -> str:
    return part if isinstance(part, str) else str(getattr(part, "name", "") or "adapter")
