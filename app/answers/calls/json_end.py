"""The end of a JSON value in text that arrives in pieces."""


class JsonEnd:
    """A scanner for the end of a JSON value that arrives in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._string = self._escaped = self._begun = False
        self.done = False  # the value has ended

    def push(self, text: str) -> int:
        """The number of characters of `text` that belong to the value."""
        for i, char in enumerate(text):
            if self._string:
                if self._escaped:
                    self._escaped = False
                elif char == "\\":
                    self._escaped = True
                elif char == '"':
                    self._string = False
                    if not self._depth:
                        self.done = True
                        return i + 1
            elif char == '"':
                self._string = self._begun = True
            elif char in "{[":
                self._depth += 1
                self._begun = True
            elif char in "}]":
                self._depth -= 1
                if self._depth <= 0:
                    self.done = True
                    return i + (self._depth == 0)
            elif not self._depth and self._begun and (char in ", \n\r\t" or not char.isprintable()):
                self.done = True
                return i
            elif not char.isspace():
                self._begun = True
        return len(text)
