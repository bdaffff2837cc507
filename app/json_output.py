"""Messages to clients as JSON. Numbers that JSON lacks become null, as in JavaScript's JSON.stringify().

They come from outside: metadata of models, numbers such as 1e999 in answers of other servers.
"""

import json
import math
from array import array
from typing import Any

from app.openai.fields import Json


def written(message: dict[str, Any]) -> tuple[str, list["array[float]"]]:
    """(the JSON, the arrays that stand in it as null, in order)."""
    vectors: list[array[float]] = []
    try:
        return json.dumps(message, default=vectors.append, allow_nan=False), vectors
    except ValueError:
        vectors.clear()
        return json.dumps(_finite(message), default=vectors.append), vectors


def _finite(value: Json) -> Json:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value
