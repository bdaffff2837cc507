"""Estimates how long a step of the CPU engine takes, and a token of a prompt."""

from __future__ import annotations

from py_engine.runners import Kind

SMOOTHING = 0.3  # weight of the newest time in the estimate
PROMPT: Kind = (0, False, 0)  # a part of a prompt, whose step is a token


class CpuStepTimes:
    """Estimated milliseconds of a step, by the kind of submit."""

    def __init__(self) -> None:
        self._times: dict[Kind, float] = {}

    def add(self, kind: Kind, ms: float) -> None:
        """Add the measured milliseconds of a step."""
        self._times[kind] = (1 - SMOOTHING) * self._times.get(kind, ms) + SMOOTHING * ms

    def ms(self, kind: Kind) -> float:
        """Estimated milliseconds of a step; 0: not measured yet."""
        return self._times.get(kind, 0.0)

    def steps_in(self, kind: Kind, ms: float, most: int) -> int:
        """Steps that take about `ms`; at least 1, at most `most`; 1 if none was measured."""
        known = self.ms(kind)
        return max(1, min(most, int(ms / known))) if known else 1

    def prompt_tokens_in(self, ms: float, least: int, most: int) -> int:
        """Tokens of a prompt that take about `ms`: a multiple of `least`, up to `most`; `most` if none was measured."""
        token = self.ms(PROMPT)
        return max(least, min(most, int(ms / token) // least * least)) if token else most
