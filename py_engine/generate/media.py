"""Pictures and sounds in a prompt: which ids stand for their embeddings, and where their tokens are.

A prompt with media is a list of ids like any other. Ids from FIRST_MEDIA_ID on are made of a hash of the contents, so
equal pictures have equal ids, and the KV caches know a picture again as they know text.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from py_engine.plan.media import MediaBatch, MediaRows
from py_engine.plan.shared_constants import FIRST_MEDIA_ID


@dataclass(eq=False)
class Media:
    """One picture, tile of a picture, or piece of sound.

    `rows`: its embeddings, float32 (n_tokens * width,): a Float32Array, or on the CPU a numpy array of any shape. None:
    they were not computed, and are not needed if the KV caches know all of its tokens.
    """

    ids: list[int]  # of its tokens
    rows: Any = None
    grid: tuple[int, int] | None = None  # tokens across and down, in models with M-RoPE
    whole: bool = False  # its tokens see all of it, where the model reads pictures like this
    number: int | None = None  # of the picture in its prompt, from 0, where that is an axis of M-RoPE
    as_text: bool = False  # its tokens are rotated like text, whose fourth axis is 0

    @property
    def n_pos(self) -> int:
        """Rotary positions that it takes."""
        return max(self.grid) if self.grid and self.number is None else len(self.ids)

    def places(self, indices: range, start: int) -> list[array[int]]:
        """The rotary positions of tokens in time, down and across, and their number; the media starts at `start`."""
        none = array("I", [0]) * len(indices)
        if self.grid is None:
            row = array("I", range(start + indices.start, start + indices.stop))
            return [row, row, row, none if self.as_text else row]
        if self.number is not None:
            return self._numbered(indices, start)
        across = self.grid[0]
        down = array("I", [start + i // across for i in indices])
        return [array("I", [start]) * len(indices), down, array("I", [start + i % across for i in indices]), none]

    def _numbered(self, indices: range, start: int) -> list[array[int]]:
        """Places of HunyuanOCR's tokens: one first, rows that each end with one, one last. Axes 1 and 2 start at 0."""
        assert self.grid is not None
        last, row = len(self.ids) - 1, self.grid[0] + 1
        ends = {0: (start,) * 4, last: (start + last,) * 4}
        places = [ends.get(i, (start + i, (i - 1) % row, (i - 1) // row, self.number)) for i in indices]
        return [array("I", axis) for axis in zip(*places, strict=True)]


def media_ids(content: str, n_tokens: int) -> list[int]:
    """The ids of a medium's tokens. `content` identifies what its embeddings are computed from."""
    digest = hashlib.shake_128(content.encode()).digest(4 * n_tokens)
    return [FIRST_MEDIA_ID | word for word in array("I", digest)]


@dataclass(frozen=True)
class Span:
    """Tokens `first` to `end` of a prompt, which are those of `media` from token `index` on."""

    first: int
    end: int
    media: Media
    index: int


Encode = Callable[[list[Media]], Awaitable[None]]  # computes the rows of media that lack them


class PromptMedia:
    """The media of one request. `encode` is needed if some of them lack their embeddings."""

    def __init__(self, media: Sequence[Media] = (), encode: Encode | None = None) -> None:
        self._encode = encode
        self._tokens = {token: (m, index) for m in media for index, token in enumerate(m.ids)}
        self._spans: dict[int, tuple[Sequence[int], list[Span]]] = {}  # by length of the prompt: ids, and its spans

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def __contains__(self, token: int) -> bool:
        return token in self._tokens

    async def encode(self, ids: Sequence[int], known: int) -> None:
        """Compute the embeddings that the tokens of a prompt need, but for the first `known` ones."""
        lacking = {span.media: None for span in self.spans(ids) if span.end > known and span.media.rows is None}
        if lacking:
            assert self._encode is not None
            await self._encode(list(lacking))

    def spans(self, ids: Sequence[int]) -> list[Span]:
        """Where media are in a prompt."""
        if not self._tokens:
            return []
        known, spans = self._spans.get(len(ids), ((), []))
        if known != ids:  # every part of a prompt asks
            spans = self._find(ids)
            self._spans[len(ids)] = ids[:], spans
        return spans

    def _find(self, ids: Sequence[int]) -> list[Span]:
        found: list[Span] = []
        first = end = begin = 0  # of the span under way: tokens first to end, of the media from token `begin` on
        media: Media | None = None
        for at, token in enumerate(ids):
            if token < FIRST_MEDIA_ID:
                continue
            of, index = self._tokens[token]
            if media is None or (at, of, index) != (end, media, begin + at - first):
                if media is not None:
                    found.append(Span(first, end, media, begin))
                first, media, begin = at, of, index
            end = at + 1
        if media is not None:
            found.append(Span(first, end, media, begin))
        return found

    def part(self, ids: Sequence[int], at: int, most: int) -> int:
        """The tokens of a part of a prompt from `at` on: at most `most`, unless a picture is to be read whole.

        A picture that does not fit begins the next part.
        """
        end = min(len(ids), at + most)
        for span in self._whole(ids, end):
            return span.first - at if span.first > at else span.end - at
        return end - at

    def part_within(self, ids: Sequence[int], at: int, most: int) -> int:
        """The tokens of a part as part() has it, but never more than `most`; 0 where a picture needs more."""
        end = min(len(ids), at + most)
        for span in self._whole(ids, end):
            return max(0, span.first - at)
        return max(0, end - at)

    def _whole(self, ids: Sequence[int], end: int) -> list[Span]:
        """The picture that is to be read whole and that a part would cut by ending at `end`, if any."""
        return [span for span in self.spans(ids) if span.media.whole and span.first < end < span.end]

    def batch(self, ids: Sequence[int], at: int, count: int) -> tuple[MediaBatch | None, int]:
        """What the tokens from `at` on need besides their ids, and the shift of the rotary positions after them.

        None: they have no media. The shift is as in Runner.feed().
        """
        if not self:
            return None, 0
        end, spans = at + count, self.spans(ids)
        places, rows = _Places(spans), []
        for span in spans:
            first, last = max(span.first, at), min(span.end, end)
            if first < last:
                rows.append(MediaRows(first - at, span.media.rows, span.index + first - span.first, last - first))
        return MediaBatch(places.records(at, end), rows) if rows else None, places.shift(end)


class _Places:
    """The rotary positions of a prompt's tokens."""

    def __init__(self, spans: list[Span]) -> None:
        self._spans, self._starts = spans, list[int]()  # rotary position of each span's first token
        shift = 0
        for span in spans:
            self._starts.append(span.first + shift)
            shift += self._length(span) - (span.end - span.first)

    @staticmethod
    def _length(span: Span) -> int:
        """The rotary positions of a span; of a part of a medium, as many as it has tokens."""
        tokens = span.end - span.first
        return min(span.media.n_pos, tokens) if tokens < len(span.media.ids) else span.media.n_pos

    def shift(self, position: int) -> int:
        """Rotary position - position of a text token at `position`."""
        shift = 0
        for span in self._spans:
            if span.end <= position:
                shift += self._length(span) - (span.end - span.first)
        return shift

    def records(self, begin: int, end: int) -> array[int]:
        """The records of the tokens `begin` to `end` (MediaBatch)."""
        words, at = array("I"), begin
        for span, start in zip(self._spans, self._starts, strict=True):
            words.extend(self._of_text(at, min(span.first, end)))
            words.extend(_of_media(span, start, range(max(span.first, at), min(span.end, end))))
            at = max(at, span.end)
        words.extend(self._of_text(at, end))
        return words

    def _of_text(self, begin: int, end: int) -> array[int]:
        shift = self.shift(begin)
        places = array("I", range(begin + shift, end + shift))
        none = array("I", [0]) * len(places)
        return _records(array("I", range(begin + 1, end + 1)), [places, places, places, none])


def _of_media(span: Span, start: int, positions: range) -> array[int]:
    if span.media.whole:
        seen = array("I", [span.end]) * len(positions)
    else:
        seen = array("I", range(positions.start + 1, positions.stop + 1))
    before = span.index - span.first
    indices = range(positions.start + before, positions.stop + before)
    return _records(seen, span.media.places(indices, start))


def _records(seen: array[int], places: list[array[int]]) -> array[int]:
    words = array("I", [0]) * ((1 + len(places)) * len(seen))
    for i, column in enumerate([seen, *places]):
        words[i :: 1 + len(places)] = column
    return words
