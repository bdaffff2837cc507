"""A sequence that the scheduler runs, and the work on the device whose results it waits for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from py_engine.generate.answer import Answer
from py_engine.generate.constrained_answer import ConstrainedAnswer
from py_engine.generate.prompt_parts import PART_MS, PromptPart
from py_engine.generate.sequence_cache import SequenceCache
from py_engine.generate.speculation import Predictions
from py_engine.plan.sampling import Batch
from py_engine.runners import Row


@dataclass
class OpenPart:
    """A part of a prompt whose first slice was submitted, and whose last was not (prompt_slices.py)."""

    part: PromptPart
    slice_ms: float
    rest: deque[Callable[[], None]]  # what submits the other slices, in order
    droppable: bool  # at an abort: it has changed nothing that the caches record


@dataclass(eq=False)
class RunningSequence:
    """One answer that runs: how much of it was submitted, and the queue that its tokens go to."""

    answer: Answer
    cache: SequenceCache
    left: int  # tokens that may still be submitted
    predictions: Predictions | None = None  # see predicted()
    reads: int = 0  # results with tokens so far
    draft_fits: bool = True  # before the context or the pages end
    constrained: ConstrainedAnswer | None = None  # checks what is sampled
    masked: bool = False  # the next token is sampled with the constraint's mask
    version: int = 0  # counts restarts after a check; results of submits from before the last one are dropped
    leaves: bool = False  # generation.py goes on with it alone
    position: int = 0  # of the newest token, after all submits
    ids: list[int] = field(default_factory=list)  # prompt and answer, as far as they were read
    submits: int = 0  # whose results were not read yet
    last_submit: int = 0  # its number, of all that the scheduler has submitted
    admitted: bool = False  # its prompt may be read (prompt_order.py)
    open_part: OpenPart | None = None  # of its prompt
    lets_pass_ms: float = PART_MS  # of younger prompts, which may be read before its next part
    prompted: bool = False  # its prompt was submitted, or will not be
    cancelled: bool = False
    batches: asyncio.Queue[Batch | BaseException | None] = field(default_factory=asyncio.Queue)  # None at the end
    released: asyncio.Event = field(default_factory=asyncio.Event)  # the device no longer works on it

    @property
    def row(self) -> Row:
        """Its place in a batch."""
        return Row(self.cache.number, self.position)

    @property
    def prompting(self) -> bool:
        """Whether a part of its prompt was not submitted yet."""
        return len(self.cache.tokens) < len(self.answer.ids)

    @property
    def runnable(self) -> bool:
        """Whether it needs more submits."""
        if self.open_part is not None and not (self.cancelled and self.open_part.droppable):
            return True
        stays = not (self.cancelled or self.leaves or self.answer.lacks_pages)
        return stays and (self.prompting or self.left > 0)

    def predicted(self) -> float:
        """The fraction of its tokens that prompt lookup predicts; 0 at first.

        To go through a long prompt takes milliseconds, so that waits until the first token was handed on.
        """
        if self.predictions is None and self.reads >= 2:
            self.predictions = Predictions(self.answer.ids)
            self.predictions.add(self.ids[len(self.answer.ids) :])
        return self.predictions.fraction if self.predictions is not None else 0.0

    def push(self, batch: Batch) -> None:
        """Queue its next tokens. None of them is needed after one that ends the answer."""
        if self.cancelled:
            return
        self.reads += bool(batch.ids)
        if self.predictions is not None:
            self.predictions.add(batch.ids)
        self.ids += batch.ids
        if not self.answer.stop_ids.isdisjoint(batch.ids):
            self.left = 0
        self.batches.put_nowait(batch)


@dataclass
class ScheduledWork:
    """Work on the device whose result was not read yet."""

    unit: list[RunningSequence]
    ms: float  # that it takes
    samples: bool = True  # else a part of a prompt without its end
    prompt: bool = False
    steps: int = 0  # that verify drafts; 0: it has none
    n_model_draft: int = 0  # tokens of each draft, if the draft model or the MTP layer makes them
    waited: bool = False  # the device had no work when it was submitted
    versions: list[int] = field(init=False)  # of the sequences
    masked: list[bool] = field(init=False)  # whether each sequence's token is sampled with a mask

    def __post_init__(self) -> None:
        self.versions = [sequence.version for sequence in self.unit]
        self.masked = [sequence.masked for sequence in self.unit]
