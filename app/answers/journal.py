"""The journal of an answer: what its client needs so that another worker can continue it.

Chunks and the tokens that they were made of reach the client in one message, so it has both or neither when a worker
ends. A worker that gets the journal back makes the chunks of those tokens again, drops them, and goes on.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from app.openai.answers import Identity
from app.openai.fields import Json, wrong_value
from py_engine.plan.sampling import Batch, TokenLogprob

WHOLE_S = 1.0  # time between two messages about an answer that is not streamed


@dataclass
class Recorded:
    """What a journal says of one choice."""

    seed: int | None = None  # that its tokens are sampled with; the journal has it from the first batch on
    batches: list[Batch] = field(default_factory=list)
    closed: bool = False  # its last chunk was made

    @property
    def ids(self) -> list[int]:
        """All its tokens."""
        return [token for batch in self.batches for token in batch.ids]


class Journal:
    """The journal of one request. `post(kind, **fields)` sends its client a message about it."""

    def __init__(self, post: Callable[..., None], *, streamed: bool, resume: Json = None, replay: bool = False) -> None:
        """`resume`: the journal of an earlier worker. `replay`: also send the chunks of its tokens."""
        self._post, self._streamed, self._replay = post, streamed, replay
        self._chunks: list[dict[str, Json]] = []
        self._entries: list[dict[str, Json]] = []
        self._posted = time.monotonic()
        self.identity = Identity.new()
        self.choices: dict[int, Recorded] = {}  # of an earlier worker
        self.over = False  # an earlier worker made all chunks
        self.branched = False  # the page has chosen the last token
        if resume is not None:
            self._read(resume)
        if resume is None or replay:
            self._entries.append({"answer": asdict(self.identity)})

    def chunk(self, chunk: dict[str, Json]) -> None:
        """Add a chunk to the next message."""
        self._chunks.append(chunk)

    def begin(self, choice: int) -> None:
        """Record that a choice has begun; where an earlier worker began it, that its chunks were made again."""
        recorded = self.choices.get(choice)
        if recorded is None:
            self._entries.append({"choice": choice})
            if self._streamed:  # the device gets the prompt before the message is made
                asyncio.get_running_loop().call_soon(self._send)
        elif self._replay:
            written = [_written(batch) for batch in recorded.batches]
            self._add({"choice": choice, "seed": recorded.seed, "batches": written, "closed": recorded.closed})
        else:
            self._chunks.clear()

    def batch(self, choice: int, batch: Batch, seed: int | None) -> None:
        """Record tokens of a choice, with the chunks that were made of them."""
        self._add({"choice": choice, "seed": seed, "batches": [_written(batch)]})

    def close(self, choice: int) -> None:
        """Record that a choice is complete."""
        self._add({"choice": choice, "closed": True})

    def end(self) -> None:
        """Record that all chunks were made."""
        if self.over and not self._replay:
            self._chunks.clear()
        else:
            self._add({"over": True})

    def _add(self, entry: dict[str, Json]) -> None:
        self._entries.append(entry)
        if self._streamed or time.monotonic() - self._posted > WHOLE_S:
            self._send()

    def _send(self) -> None:
        if self._entries:
            self._post("chunks", chunks=self._chunks, journal=self._entries)
            self._chunks, self._entries, self._posted = [], [], time.monotonic()

    def _read(self, resume: Json) -> None:
        try:
            self.identity = Identity(str(resume["answer"]["root"]), int(resume["answer"]["created"]))
            datetime.fromtimestamp(self.identity.created)
            for number, choice in enumerate(resume["choices"]):
                if choice is not None:  # it has not begun
                    self.choices[number] = _recorded(choice)
            self.over, self.branched = resume.get("over") is True, resume.get("branched") is True
        except (AttributeError, IndexError, KeyError, OSError, OverflowError, TypeError, ValueError):
            raise wrong_value("resume is not the journal of an answer.", "resume") from None


def _recorded(choice: Any) -> Recorded:
    seed = choice.get("seed")
    batches = [_batch(written) for written in choice["batches"]]
    return Recorded(None if seed is None else int(seed), batches, choice.get("closed") is True)


def _written(batch: Batch) -> Json:
    """The tokens of a batch; with log-probabilities [token, log-probability, the most probable ones] of each."""
    if batch.logprobs is None:
        return batch.ids
    return [[entry.token, entry.logprob, entry.top] for entry in batch.logprobs]


def _batch(written: Any) -> Batch:
    if not any(isinstance(entry, list) for entry in written):
        return Batch([int(token) for token in written])
    scored = [
        TokenLogprob(int(token), float(value), [(int(other), float(least)) for other, least in top])
        for token, value, top in written
    ]
    return Batch([entry.token for entry in scored], scored)
