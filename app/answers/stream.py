"""Turn token ids into text to send. Hold back incomplete characters and possible starts of stop strings."""

from collections import deque
from collections.abc import Iterable, Sequence

from app.answers.markers import Markers
from py_engine.plan.sampling import TokenLogprob
from py_engine.text.tokenizer import TextStream


class StopStrings:
    """A filter that passes text on up to the first stop string. Holds back text that may become one."""

    def __init__(self, stops: Iterable[str] = ()) -> None:
        self._stops = Markers(stops)
        self._held = ""
        self.stopped: str | None = None  # the stop string that ended the text

    def push(self, text: str) -> str:
        """The text that can be sent now."""
        if self.stopped is not None:
            return ""
        text = self._held + text
        if found := self._stops.first(text):  # unlike in Until, also where it may become a longer one
            at, self.stopped = found
            self._held = ""
        else:
            at = len(text) - self._stops.undecided(text)
            self._held = text[at:]
        return text[:at]

    def finish(self) -> str:
        """The text that was held back, at the end."""
        text, self._held = self._held, ""
        return text


class AnswerStream:
    """The text of one answer from batches of ids, and the log-probabilities of the tokens whose text was sent.

    `of_all`: also the log-probabilities of tokens without a text, such as the end.
    """

    def __init__(
        self, decoder: TextStream, stops: Iterable[str], end_ids: frozenset[int], *, of_all: bool = False
    ) -> None:
        self._decoder, self._of_all = decoder, of_all
        self._stops = StopStrings(stops)
        self._end_ids = end_ids
        self.ended = False  # an end token, a stop string or the caller ended the answer
        self.ended_by_token = False
        self.tokens = 0  # ids used, including the end token and those of the stop string
        self._decoded = self._sent = 0  # characters
        self._waiting: deque[tuple[int, int, TokenLogprob]] = deque()  # (start, end of its text, log-probability)
        self._released: list[TokenLogprob] = []

    @property
    def stopped(self) -> str | None:
        """The stop string that ended the answer."""
        return self._stops.stopped

    def push(self, ids: Sequence[int], logprobs: Sequence[TokenLogprob] | None = None) -> str:
        """The text to send after these ids. Ids after the end are ignored."""
        out = ""
        for i, token in enumerate(ids):
            if self.ended:
                break
            self.tokens += 1
            start = self._decoded
            if token in self._end_ids:
                self.ended = self.ended_by_token = True
                if logprobs is not None and self._of_all:
                    self._waiting.append((start, start, logprobs[i]))
                continue
            text = self._decoder.push(token)
            self._decoded += len(text)
            if logprobs is not None and (self._of_all or not self._decoder.hides(token)):
                self._waiting.append((start, self._decoded, logprobs[i]))
            sent = self._stops.push(text)
            out += sent
            self._sent += len(sent)
            self.ended = self._stops.stopped is not None
            self._release()
        return out

    def finish(self) -> str:
        """The rest of the text, at the end."""
        if self._stops.stopped is not None:
            return ""
        out = self._stops.push(self._decoder.finish()) + self._stops.finish()
        self._sent += len(out)
        self._release(everything=self._stops.stopped is None)
        return out

    def logprobs(self) -> list[TokenLogprob]:
        """The log-probabilities of tokens whose text was sent since the last call, even if a stop string cut it."""
        out, self._released = self._released, []
        return out

    def _release(self, everything: bool = False) -> None:
        cut = self._stops.stopped is not None
        while self._waiting:
            start, end, entry = self._waiting[0]
            if not (everything or end <= self._sent or (cut and start < self._sent)):
                break
            self._released.append(entry)
            self._waiting.popleft()
        if cut:
            self._waiting.clear()
