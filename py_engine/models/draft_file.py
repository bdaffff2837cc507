"""The file of a draft model, and what a plan knows of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from py_engine.files.gguf_header import Header


@dataclass(frozen=True)
class DraftFile:
    """The file of a draft model, beside a model."""

    header: Header  # by the names in the file
    kv_type: str  # of the model's caches
    factors: Sequence[float] | None  # divisors of its RoPE frequencies
    tokens: Sequence[int] | None  # the model's tokens that it knows, in the order of its logits; None: all
