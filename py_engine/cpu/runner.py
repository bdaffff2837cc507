"""The numpy runner. It runs in the worker's thread and needs no WebGPU."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from py_engine.plan.lists import DECODE, DECODE_STEP, SAMPLE, SAMPLE_EACH, SMALL_BATCH, SMALL_BATCH_LOGITS, VERIFY_DRAFT
from py_engine.plan.placement import Placement
from py_engine.plan.plan import Plan
from py_engine.plan.sampling import Batch, Sampling, read_logprobs
from py_engine.plan.shared import MAX_SMALL_BATCH
from py_engine.runners import Counts

if TYPE_CHECKING:
    from py_engine.cpu.executor import Cpu


class CpuRunner:
    """The runner of one plan on the CPU."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.lists = [SAMPLE]
        self.on_gpu = False
        self._free, self._masked = self.lists, self.lists
        self._sampling = Sampling()
        self._resampled = 0
        self._raw: dict[str, Any] = {}  # weight -> its bytes in the file
        self._cpu: Cpu  # from ready() to close()
        self._seq = self._position = self._left = 0
        self._sampled_before: list[tuple[int, int, bool]] = []  # sequence, position, whether its token exists
        self._batch_kind: tuple[bool, int] = (False, 1)  # drafting, sequences
        self._batch_step_ms: dict[tuple[bool, int], float] = {}  # batch kind -> milliseconds
        self._pending = False  # the last sampled token has not gone through the layers
        self._in_flight: deque[tuple[int, int]] = deque()  # of every step: tokens, resampled

    async def load(self, data: Any, placements: Sequence[Placement]) -> None:
        import numpy as np

        for p in placements:
            if p.weight.name not in self._raw:
                size = p.weight.rows * p.row_bytes if p.weight.rows > 1 else 4 * p.weight.cols
                self._raw[p.weight.name] = np.zeros(size, np.uint8)
            raw = self._raw[p.weight.name]
            at = p.row0 * p.row_bytes if p.weight.rows > 1 else p.row0
            piece = data.slice(p.src, p.src + p.rows * p.row_bytes).to_bytes()
            raw[at : at + len(piece)] = np.frombuffer(piece, np.uint8)

    async def ready(self) -> None:
        from py_engine.cpu.executor import Cpu, dequantize

        weights = {}
        for weight in self.plan.weights.values():
            weights[weight.name] = dequantize(weight, self._raw.pop(weight.name))
            await asyncio.sleep(0)
        self._cpu = Cpu(self.plan, weights)

    async def reserve_sequences(self, sequences: int) -> None:
        self._cpu.reserve_sequences(sequences)

    async def copy_cache(self, source: int, to: int) -> None:
        self._cpu.copy_cache(source, to)

    async def configure(self, sampling: Sampling, answer: int, shifted: int, constrained: bool, seq: int = 0) -> None:
        vocab = self.plan.n_vocab
        self.lists = self._free = sampling.lists()
        self._masked = sampling.lists(constrained)
        self._cpu.write("bias", sampling.biases(vocab))
        self._cpu.write("breakers", sampling.breaker_bits(vocab))
        packed = sampling.pack(answer, shifted)
        self._cpu.write("sampling", packed, seq * len(packed))
        self._sampling = sampling

    async def feed(self, position: int, ids: list[int], lists: list[str], seq: int = 0) -> None:
        if self._pending:
            self._run([DECODE])
        self._pending = False
        if SMALL_BATCH in lists:
            self._set_states([(position + i, seq) for i in range(len(ids))])
        self._cpu.feed(position, ids, lists, seq)
        await asyncio.sleep(0)

    def _set_states(self, places: list[tuple[int, int]]) -> None:
        """Set the state of each token of a small batch: (position, sequence)."""
        self._cpu.buffers["states"][: len(places)] = [(at, len(places), 0, seq) for at, seq in places]

    def start(self, position: int, count: int, seq: int = 0) -> None:
        self._seq, self._position, self._left = seq, position, count

    def prepared(self, lists: Sequence[str]) -> bool:
        return True

    def start_batch(
        self, sequences: list[int], positions: list[int], sampled: list[bool], count: int, drafting: bool = False
    ) -> None:
        self._batch_kind, self._left = (drafting, len(sequences)), count
        self._sampled_before = list(zip(sequences, positions, sampled, strict=True)) if any(sampled) else []
        positions = [at + exists for at, exists in zip(positions, sampled, strict=True)]
        if len(sequences) == 1 and not drafting:
            self._seq, self._position = sequences[0], positions[0]
            self._cpu.buffers["state"][[0, 1, 3]] = positions[0] - 1, 1, sequences[0]
            return
        self._set_states([(at - 1, seq) for at, seq in zip(positions, sequences, strict=True)])
        self._cpu.buffers["drafting"][:2] = self.plan.n_ctx - 1, 2

    async def next_batch(self, more: bool = True) -> list[list[int]]:
        drafting, n_sequences = self._batch_kind
        if self._sampled_before:
            first, self._sampled_before = self._sampled_before, []
            tokens = self._cpu.buffers["tokens"]
            return [[int(tokens[seq, at])] if exists else [] for seq, at, exists in first]
        if not more or not self._left:
            return []
        started = time.perf_counter()
        if n_sequences == 1 and not drafting:
            self._run([*DECODE_STEP])
            out = [(await self._read_tokens(1)).ids]
        else:
            states, tokens = self._cpu.buffers["states"], self._cpu.buffers["tokens"]
            before = states[:n_sequences, 0] + 1
            if drafting and int(before[0]) + MAX_SMALL_BATCH >= self.plan.n_ctx:
                return []
            self._run([SMALL_BATCH, SMALL_BATCH_LOGITS, VERIFY_DRAFT if drafting else SAMPLE_EACH])
            out = [
                [int(i) for i in tokens[seq, first : last + 1]]
                for first, (last, _, _, seq) in zip(before, states[:n_sequences], strict=True)
            ]
            self._left -= min(self._left, len(out[0]))
            await asyncio.sleep(0)
        ms = 1000 * (time.perf_counter() - started)
        self._batch_step_ms[self._batch_kind] = 0.7 * self._batch_step_ms.get(self._batch_kind, ms) + 0.3 * ms
        return out

    def step_cost_ms(self, drafting: bool, sequences: int = 1) -> float:
        return self._batch_step_ms.get((drafting, sequences), 0.0)

    async def next(self) -> Batch:
        if not self._left:
            return Batch([])
        if self._position > int(self._cpu.buffers["state"][0]):
            self._run([DECODE, *self.lists])
        return await self._read_tokens(1)

    async def _read_tokens(self, count: int) -> Batch:
        """Read the next `count` tokens of the sequence."""
        await asyncio.sleep(0)  # lets messages in, such as an abort
        n, first = self._sampling.logprobs, self._position
        self._position += count
        self._left -= count
        ids = [int(i) for i in self._cpu.buffers["tokens"][self._seq, first : self._position]]
        if n < 0:
            return Batch(ids)
        rows = self._cpu.buffers["logprobs"]
        packed = b"".join(rows[at % len(rows)].tobytes() for at in range(first, self._position))
        return Batch(ids, read_logprobs(memoryview(packed), count, n, self.plan.n_vocab))

    def _run(self, lists: Sequence[str]) -> None:
        for name in lists:
            self._cpu.run(name)

    def begin(self, position: int, count: int, seq: int = 0) -> None:
        self.start(position, count, seq)
        self._in_flight.clear()

    def mask(self, allowed: Any | None) -> None:
        if allowed is not None:
            words = allowed.to_py() if hasattr(allowed, "to_py") else allowed
            self._cpu.write("mask", memoryview(words).cast("B")[: 4 * -(-self.plan.n_vocab // 32)])
        self.lists = self._free if allowed is None else self._masked

    def step(self, count: int, eager: bool = False) -> int:
        for _ in range(count):
            self._run([DECODE, *self.lists] if self._pending else self.lists)
            self._pending = True
        self._in_flight.append((count, int(self._cpu.buffers["state"][2])))
        return count

    async def take(self) -> tuple[Batch, bool]:
        count, resampled = self._in_flight.popleft()
        again, self._resampled = resampled != self._resampled, resampled
        return await self._read_tokens(count), again

    async def rewind(self, position: int, count: int) -> None:
        self._in_flight.clear()
        self._position, self._left, self._pending = position, count, True
        self._cpu.buffers["state"][[0, 1, 3]] = position - 1, 1, self._seq

    def max_lookahead(self) -> int:
        return 1

    async def stop(self) -> None:
        self._left, self._pending = 0, False

    async def logits(self, n: int) -> Any:
        return await self.rows("all_logits.logits", n, self.plan.n_vocab)

    async def rows(self, name: str, n: int, width: int) -> Any:
        return self._cpu.buffers[name][:n, :width].copy()

    async def pooled_rows(self, sequences: Sequence[list[int]], lists: list[str], name: str, width: int) -> Any:
        import numpy as np

        rows, size = [], self.plan.batch
        for ids in sequences:
            for at in range(0, len(ids), size):
                await self.feed(at, ids[at : at + size], lists)
            rows.append(self._cpu.buffers[name][0, :width].copy())
        return np.stack(rows)

    def counts(self) -> Counts:
        return Counts()

    def close(self) -> None:
        if hasattr(self, "_cpu"):
            del self._cpu
        self._raw = {}
