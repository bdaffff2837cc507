"""Prompts with embeddings in place of tokens, from numpy arrays."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from app.answers.pieces import PromptEmbeddings, PromptPieces
from py_engine.errors import WispError

if TYPE_CHECKING:
    from numpy.typing import NDArray

IN_BROWSER = sys.platform == "emscripten"
Piece: TypeAlias = "str | Sequence[int] | NDArray[Any]"


def prompt_of(given: Sequence[Any]) -> PromptPieces:
    """A prompt of texts, lists of ids, and arrays. WispError invalid_value."""
    return PromptPieces([_piece(one) for one in given])


def _piece(given: Any) -> str | list[int] | PromptEmbeddings:
    if isinstance(given, str):
        return given
    if isinstance(given, list | tuple) and all(isinstance(one, int) for one in given):
        return list(given)
    return _rows(given)


def _rows(given: Any) -> PromptEmbeddings:
    import numpy as np

    try:
        values = np.ascontiguousarray(given, np.float32)
    except (TypeError, ValueError):
        values = np.empty(0, np.float32)
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise WispError(
            "Embeddings must be an array (n, n_embd) of finite numbers.", "invalid_value", param="embeddings"
        )
    count, width = values.shape
    return PromptEmbeddings(count, width, _shared(values), values.tobytes())


def _shared(values: "NDArray[Any]") -> Any:
    """The values as runners take them: in a browser a Float32Array."""
    if not IN_BROWSER:
        return values
    from pyodide.ffi import to_js

    return to_js(values.ravel())
