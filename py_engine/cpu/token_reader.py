"""Where the tokens of CPU steps lie in memory, and how what is read there becomes batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from py_engine.cpu.device import Region
from py_engine.cpu.memory import Memory
from py_engine.plan.plan import Plan
from py_engine.plan.sampling import Batch, Sampling, read_logprobs
from py_engine.plan.shared_constants import LOGPROB_ROW_BYTES, LOGPROB_ROWS
from py_engine.runners import Row

Parse = Callable[[bytes], list[Batch]]


class TokenReader:
    """Finds the tokens of sequences, with their log-probabilities where these were requested."""

    def __init__(self, plan: Plan, memory: Memory, samplings: Mapping[int, Sampling]) -> None:
        self._plan, self._memory, self._samplings = plan, memory, samplings

    def of(self, rows: Sequence[Row], count: int) -> tuple[list[Region], Parse]:
        """What to read of `count` tokens after each row's newest one, and how to parse it: a batch for each row."""
        tokens, logprobs = self._memory.buffer("tokens"), self._memory.buffer("logprobs")
        capacity, regions = self._plan.buffers["tokens"].shape[1], []
        wanted = [self._samplings[row.seq].logprobs if row.seq in self._samplings else -1 for row in rows]
        for row, n in zip(rows, wanted, strict=True):
            first = row.position + 1
            regions.append(Region(tokens + 4 * (row.seq * capacity + first), 4 * count))
            for at in range(first, first + count) if n >= 0 else ():
                line = row.seq * LOGPROB_ROWS + at % LOGPROB_ROWS
                regions.append(Region(logprobs + line * LOGPROB_ROW_BYTES, LOGPROB_ROW_BYTES))
        return regions, lambda data: self._parsed(data, wanted, count)

    def _parsed(self, data: bytes, wanted: Sequence[int], count: int) -> list[Batch]:
        """`wanted`: of each row, how many log-probabilities of other tokens were requested; below 0: none at all."""
        view, at, found = memoryview(data), 0, []
        for n in wanted:
            ids = view[at : at + 4 * count].cast("I").tolist()
            at += 4 * count
            size = LOGPROB_ROW_BYTES * count if n >= 0 else 0
            scored = read_logprobs(view[at : at + size], count, n, self._plan.n_vocab) if size else None
            at += size
            found.append(Batch(ids, scored))
        return found
