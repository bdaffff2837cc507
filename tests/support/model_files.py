"""A model's file and its adapters in memory, for engines outside a browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from py_engine.files.draft_header import DRAFT, TOKENS, has_tokens, read_tokens
from py_engine.files.gguf_header import Header, parse
from py_engine.files.parts import Parts
from py_engine.models.common import rope_factors
from py_engine.options import AdapterOptions
from py_engine.plan.adapters import Adapters, read_adapters
from py_engine.plan.plan import ZEROS


@dataclass(frozen=True)
class ModelFiles:
    """The bytes of each file, and their headers."""

    data: list[bytes]
    parts: Parts
    adapters: Adapters

    @classmethod
    def read(
        cls, path: Path, adapters: Sequence[Path] = (), options: Sequence[AdapterOptions] = (),
        draft: Path | None = None,
    ) -> ModelFiles:  # fmt: skip
        """Read a model, adapters for it and a draft model. WispError if they do not fit."""
        data = [one.read_bytes() for one in (path, *adapters, *([draft] if draft else []))]
        sources: list[Any] = [None] * len(data)
        parts = Parts.of(sources, [parse(one, len(one)) for one in data], draft is not None)
        return cls(data, parts, read_adapters(parts.header, parts.adapters, options))

    def factors(self, n_ctx: int) -> list[float] | None:
        """RoPE's frequency divisors of the model, if it has any."""
        return self._factors(self.parts.header, n_ctx)

    def draft_factors(self, n_ctx: int) -> list[float] | None:
        """Those of the draft model."""
        return self._factors(self.parts.draft, n_ctx, DRAFT) if self.parts.draft else None

    def draft_tokens(self) -> list[int] | None:
        """The model's tokens that an EAGLE-3 head knows, if it is not all."""
        has = self.parts.draft is not None and has_tokens(self.parts.draft)
        return read_tokens(self.rows(DRAFT + TOKENS, 0, 1)) if has else None

    def _factors(self, header: Header, n_ctx: int, prefix: str = "") -> list[float] | None:
        tensor = rope_factors(header, n_ctx)
        return np.frombuffer(self.rows(prefix + tensor, 0, 1), np.float32).tolist() if tensor else None

    def rows(self, tensor: str, first: int, rows: int) -> bytes:
        """The bytes of rows of a tensor."""
        if tensor == ZEROS:
            return bytes(4 * rows)
        for data, header in zip(self.data, self.parts.headers, strict=True):
            if info := header.tensors.get(tensor):
                size = info.nbytes // max(1, prod(info.shape[1:]))
                begin = header.data_offset + info.offset + first * size
                return data[begin : begin + rows * size]
        raise KeyError(tensor)
