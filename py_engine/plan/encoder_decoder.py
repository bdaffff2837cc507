"""Encoder-decoder models: where the encoder's results are, and which rows of the caches each attention reads.

A sequence has the prompt's tokens, then the decoder's. At the prompt's positions, a decoder layer's cache holds the
keys and values that cross-attention reads, of the encoder's results; at the later ones, those of the decoder's own
tokens. A sequence's shift in the state buffer (pages.py) is minus the number of its prompt's tokens, so that
position + shift is a token's position in the decoder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from py_engine.errors import WispError
from py_engine.plan.pages import shift_index
from py_engine.plan.plan import Plan


@dataclass(frozen=True)
class Part:
    """The rows that attention reads: those of the "encoder", which come first, or those of the "decoder"."""

    name: Literal["encoder", "decoder"]
    shifts: int  # index of the sequences' shifts in the state buffer's tables

    @property
    def params(self) -> dict[str, int | str]:
        """The #params of kernels."""
        return {"PART": self.name, "SHIFTS": self.shifts}


def part_of(plan: Plan, name: Literal["encoder", "decoder"]) -> Part:
    """A part of every cache of a plan."""
    return Part(name, shift_index(plan.n_ctx, plan.page))


def unsupported(what: str, param: str) -> WispError:
    """The error for what an encoder-decoder model cannot do. `what`: the subject of a sentence, with its verb."""
    return WispError(
        f"{what} not supported by encoder-decoder models, whose encoder reads the prompt as a whole. Leave it out.",
        "unsupported_parameter",
        param=param,
    )
