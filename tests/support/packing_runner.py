"""A runner on numpy that reads prompts of several requests as one batch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py_engine.cpu.runner import PROMPT as PROMPT_KIND
from py_engine.cpu.runner import Work
from py_engine.engine import Engine
from py_engine.plan.lists import PACKED, PACKED_LAST, SMALL_BATCH_LOGITS
from py_engine.plan.packing import PackedBatch
from py_engine.plan.pages import PREFIX_WORDS
from py_engine.plan.sampling import Batch, samplers
from py_engine.runners import DEFAULT_FEED, FeedOptions, Row
from tests.support.cpu_engines import MODEL, Runner
from tests.support.cpu_models import load


class PackingRunner(Runner):
    """`batches`: of each batch of prompts so far, how many it had, its tokens and the longest prefix."""

    packs_prompts, queues = True, True

    def __init__(self, plan: Any) -> None:
        super().__init__(plan)
        self.batches: list[tuple[int, int, int]] = []

    def set_pages(self, group: int, seq: int, first: int, pages: Sequence[int]) -> None:
        end = self._ends.get(seq, 0)
        super().set_pages(group, seq, first, pages)
        self._ends[seq] = max(end, self._ends.get(seq, 0))  # a packed batch writes before it, too

    def feed(
        self, position: int, ids: list[int], lists: Sequence[str], seq: int = 0, *, read: bool = False,
        options: FeedOptions = DEFAULT_FEED,
    ) -> Any:  # fmt: skip
        self.batches.append((1, len(ids), 0))
        return super().feed(position, ids, lists, seq, read=read, options=options)

    def prepared_packed(self, sequences: Sequence[int]) -> bool:
        return True

    def feed_prompts(self, batch: PackedBatch, rows: Sequence[Row]) -> None:
        self.batches.append((len(rows), len(batch.ids), max(batch.prefixes[::PREFIX_WORDS], default=0)))

        def run() -> list[Batch]:
            self._cpu.feed_packed(batch, [PACKED, PACKED_LAST], rows[0].seq)
            self._set_states(rows)
            samplings = [self._samplings[row.seq] for row in rows]
            self._run([SMALL_BATCH_LOGITS, *samplers(samplings, masked=False, batch=True)])
            return [self._read(row, 1) for row in rows]

        self._work.append(Work(run, PROMPT_KIND, len(batch.ids)))


def packing_engine(n_ctx: int, batch: int, page: int, path: Path = MODEL, parallel: int = 8) -> tuple[Engine, Any]:
    """An engine on a PackingRunner, and the runner."""
    cpu = load(path, n_ctx, batch, page=page)
    runner = PackingRunner(cpu.plan)
    runner._cpu = cpu
    return Engine(cpu.plan, runner, "cpu", parallel), runner
