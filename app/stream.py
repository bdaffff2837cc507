"""From token ids to the text that may be sent: half characters and possible beginnings of stop strings wait."""

from collections.abc import Iterable, Sequence

from py_engine.tokenizer import TextStream


class StopStrings:
    """Lets text through up to the first stop string; what could become one is held back until it is decided."""

    def __init__(self, stops: Iterable[str] = ()) -> None:
        self._stops = tuple(s for s in stops if s)
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.stopped: str | None = None  # the stop string that ended the text

    def push(self, text: str) -> str:
        """The text that is safe to send now."""
        if self.stopped is not None:
            return ""
        text = self._held + text
        found = [(at, -len(stop), stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            at, _, self.stopped = min(found)
            self._held = ""
            return text[:at]
        keep = self._undecided(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def finish(self) -> str:
        """What was held back, once no more text comes."""
        text, self._held = self._held, ""
        return text

    def _undecided(self, text: str) -> int:
        """Length of the longest end of `text` that a stop string begins with."""
        for length in range(min(self._longest - 1, len(text)), 0, -1):
            end = text[-length:]
            if any(stop.startswith(end) for stop in self._stops):
                return length
        return 0


class AnswerStream:
    """Text of one answer from batches of ids."""

    def __init__(self, decoder: TextStream, stops: Iterable[str], end_ids: frozenset[int]) -> None:
        self._decoder = decoder
        self._stops = StopStrings(stops)
        self._end_ids = end_ids
        self.ended = False  # by an end token or a stop string
        self.tokens = 0  # ids used, the end token and those of the stop string included

    def push(self, ids: Sequence[int]) -> str:
        """The text to send after these ids; nothing counts after the end."""
        out = ""
        for token in ids:
            if self.ended:
                break
            self.tokens += 1
            if token in self._end_ids:
                self.ended = True
            else:
                out += self._stops.push(self._decoder.push(token))
                self.ended = self._stops.stopped is not None
        return out

    def finish(self) -> str:
        """The rest of the text."""
        if self._stops.stopped is not None:
            return ""
        return self._stops.push(self._decoder.finish()) + self._stops.finish()
