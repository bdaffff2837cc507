"""Parse server-sent events from bytes, wherever these are split. Source of the format: WHATWG HTML, 9.2."""

import codecs
from dataclasses import dataclass

MAX_EVENT = 8 << 20  # characters of one event; what reads the stream checks `held`


@dataclass(frozen=True)
class Event:
    """One event: its name, empty where it has none, and its data lines."""

    name: str
    data: str


class Events:
    """An incremental parser: bytes in, completed events out."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line: list[str] = []  # the pieces of the last one
        self.held = 0  # characters of the event that is incomplete
        self._after_cr = self._begun = False
        self._name = ""
        self._data: list[str] = []

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        return self._parse(self._decoder.decode(data))

    def end(self) -> list[Event]:
        """The last event at the end of the bytes, also without its closing blank line."""
        return self._parse(self._decoder.decode(b"", final=True) + "\n\n")

    def _parse(self, text: str) -> list[Event]:
        if text and not self._begun:
            self._begun = True
            text = text.removeprefix("\ufeff")
        if self._after_cr and text:
            text, self._after_cr = text.removeprefix("\n"), False
        if text.endswith("\r"):
            self._after_cr = True
        self.held += len(text)
        self._line.append(text)
        if "\n" not in text and "\r" not in text:
            return []
        *lines, rest = "".join(self._line).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._line = [rest]
        return [event for line in lines if (event := self._field(line))]

    def _field(self, line: str) -> Event | None:
        if not line:
            event = Event(self._name, "\n".join(self._data)) if self._data else None
            self._name, self._data, self.held = "", [], 0
            return event
        name, _, value = line.partition(":")  # a comment's name is empty
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._name = value
        return None
