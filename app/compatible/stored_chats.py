"""Chats that clients continue by the id of an answer. They are in the worker's memory only, and end with it."""

import json
from collections import OrderedDict

from app.openai.fields import Json
from py_engine.errors import NOT_FOUND, WispError

MOST_CHATS = 200
MOST_CHARACTERS = 64 << 20  # of all chats as JSON, with their pictures

Messages = list[dict[str, Json]]


class StoredChats:
    """The newest chats, each at one of its answers. A chat can be continued from any of them, also twice."""

    def __init__(self, most: int = MOST_CHATS, most_characters: int = MOST_CHARACTERS) -> None:
        self._most, self._most_characters = most, most_characters
        self._chats: OrderedDict[str, tuple[Messages, int]] = OrderedDict()  # and their sizes
        self._characters = 0

    def add(self, answer: str, messages: Messages) -> None:
        """Store a chat that ends with an answer. The least recently used ones are dropped for it."""
        size = len(json.dumps(messages))
        self._chats[answer] = messages, size
        self._characters += size
        while len(self._chats) > self._most or self._characters > self._most_characters:
            _, (_, dropped) = self._chats.popitem(last=False)
            self._characters -= dropped

    def until(self, answer: str, param: str) -> Messages:
        """The messages of a chat, up to an answer. WispError if they are not stored."""
        if answer not in self._chats:
            raise WispError(
                f"The chat that ends with {answer!r} is not stored. The newest {self._most} chats are, until the "
                "page's engine ends. Begin a new one.",
                "invalid_value",
                NOT_FOUND,
                param,
            )
        self._chats.move_to_end(answer)
        return self._chats[answer][0]
