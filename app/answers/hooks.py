"""The caller's own code in an answer: a logits processor, and a rule that ends the answer.

Only callers in the same Python have hooks; requests by message have none.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from py_engine.plan.processors import Processor
from py_engine.plan.sampling import Constraint

# (ids of the prompt and of the answer so far, logits) -> the logits to sample from.
# Logits are float32 (vocab,): a Float32Array or a numpy array comes in, bytes go out.
ProcessLogits = Callable[[Sequence[int], Any], Awaitable[bytes]]
StopWhen = Callable[[Sequence[int], str], bool]  # (ids of the answer so far, its text so far) -> whether it ends


@dataclass(frozen=True)
class Hooks:
    """The hooks of one request."""

    process_logits: ProcessLogits | None = None
    processor: Processor | None = None  # in WGSL, in place of process_logits
    stop_when: StopWhen | None = None


class Processed:
    """A Constraint that processes the logits before each token, within another constraint if there is one."""

    def __init__(self, process: ProcessLogits, ids: Sequence[int], within: Constraint | None) -> None:
        """`ids`: of the prompt, and of what the answer begins with."""
        self._process, self._ids, self._within = process, list(ids), within

    async def mask(self) -> Any | None:
        """The mask of the other constraint."""
        return await self._within.mask() if self._within is not None else None

    async def accept(self, token: int) -> None:
        """Advance past a token."""
        self._ids.append(token)
        if self._within is not None:
            await self._within.accept(token)

    async def forced(self) -> list[int]:
        """No tokens: the processor sees the logits of every one."""
        return []

    def finished(self) -> bool:
        """Whether the other constraint allows only the end."""
        return self._within is not None and self._within.finished()

    async def process(self, logits: Any) -> bytes:
        """The logits to sample the next token from."""
        return await self._process(self._ids, logits)
