"""What is submitted to the GPU in one piece, and its result."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from py_engine.gpu.step_times import prompt_kind
from py_engine.plan.sampling import Batch, read_logprobs
from py_engine.plan.shared_constants import LOGPROB_ROW_BYTES


@dataclass(frozen=True)
class GpuSubmit:
    """Work on the GPU whose result has not been read."""

    rows: int  # sequences; 0: a part of a prompt, or several prompts
    steps: int  # decode steps; of prompts, their tokens
    drafting: bool = False
    n_model_draft: int = 0  # tokens that the draft model drafts
    logprobs: tuple[int, ...] = (-1,)  # likeliest tokens to return, of each row; -1: no log-probabilities
    read: bool = True
    slices: int = 1  # of the part of a prompt that it belongs to
    slice_: int = 0  # its number among them

    @property
    def ends_part(self) -> bool:
        """Whether it is the only slice, or the last one: what others read back has no meaning."""
        return self.slice_ == self.slices - 1

    @property
    def scored(self) -> bool:
        """Whether a row asked for log-probabilities."""
        return max(self.logprobs) >= 0

    @property
    def kind(self) -> Hashable:
        """Submits of a kind take the same time per step."""
        return (self.rows, self.drafting, self.n_model_draft) if self.rows else prompt_kind(self.steps)

    def batches(self, result: Any, n_vocab: int) -> list[Batch]:
        """The tokens of each sequence, with their log-probabilities where it asked for them. `result`: of replay.js."""
        if not self.ends_part:
            return [Batch([])]
        ids = [int(i) for i in result.ids.to_py()]
        if self.drafting:
            ends = list(accumulate(int(count) for count in result.counts.to_py()))
            return [Batch(ids[at:end]) for at, end in zip([0, *ends], ends, strict=False)]
        if not self.scored:
            size = max(1, len(ids) // len(self.logprobs))
            return [Batch(ids[at : at + size]) for at in range(0, len(ids), size)] or [Batch([])]
        rows, count, out = result.rows.to_py().cast("B"), len(ids) // len(self.logprobs), []
        for i, n in enumerate(self.logprobs):
            part = rows[i * count * LOGPROB_ROW_BYTES : (i + 1) * count * LOGPROB_ROW_BYTES]
            scored = read_logprobs(part, count, n, n_vocab) if n >= 0 else None
            out.append(Batch(ids[i * count : (i + 1) * count], scored))
        return out


class PartTime:
    """The time of a prompt's part, the sum of its slices: a single one that is late says little."""

    def __init__(self) -> None:
        self._ms = 0.0

    def add(self, submit: GpuSubmit, ms: float) -> float:
        """Milliseconds of a submit; of a slice, with those before it. Steps between slices are no part of them."""
        if submit.rows:
            return ms
        self._ms = ms + (self._ms if submit.slice_ else 0.0)
        return self._ms
