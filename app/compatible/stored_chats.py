"""Chats that clients continue by the id of an answer. They are in the worker's memory only, and end with it."""

import json
from collections import OrderedDict

from app.openai.fields import Json
from py_engine.errors import NOT_FOUND, WispError

MOST_CHATS = 200
MOST_CHARACTERS = 64 << 20  # of all messages as JSON, with their pictures

Messages = list[dict[str, Json]]


class StoredChats:
    """The newest chats, each at one of its answers. A chat can be continued from any of them, also twice.

    Chats share the messages of their common beginning. Each message counts once.
    """

    def __init__(self, most: int = MOST_CHATS, most_characters: int = MOST_CHARACTERS) -> None:
        self._most, self._most_characters = most, most_characters
        self._chats: OrderedDict[str, Messages] = OrderedDict()
        self._sizes: dict[int, int] = {}  # the id() of a stored message -> its characters
        self._uses: dict[int, int] = {}  # the id() of a stored message -> the number of chats that have it
        self._characters = 0  # the sum of the sizes

    def add(self, answer: str, messages: Messages) -> bool:
        """Store a chat that ends with an answer. The least recently used ones are dropped for it.

        False if the chat alone is larger than all may be: it is not stored, and nothing is dropped.
        """
        sizes = {id(one): self._sizes.get(id(one)) or len(json.dumps(one)) for one in messages}
        if sum(sizes.values()) > self._most_characters:
            return False
        if answer in self._chats:
            self._drop(answer)
        self._chats[answer] = messages
        for key, size in sizes.items():
            if key not in self._sizes:
                self._sizes[key], self._uses[key] = size, 0
                self._characters += size
            self._uses[key] += 1
        while len(self._chats) > self._most or self._characters > self._most_characters:
            self._drop(next(iter(self._chats)))
        return True

    def _drop(self, answer: str) -> None:
        for key in {id(one) for one in self._chats.pop(answer)}:
            self._uses[key] -= 1
            if not self._uses[key]:
                del self._uses[key]
                self._characters -= self._sizes.pop(key)

    def until(self, answer: str, param: str) -> Messages:
        """The messages of a chat, up to an answer. WispError if they are not stored."""
        if answer not in self._chats:
            raise WispError(
                f"The chat that ends with {answer!r} is not stored. The newest {self._most} chats are, of at most "
                f"{self._most_characters >> 20} MiB together, until the page's engine ends. Begin a new one.",
                "invalid_value",
                NOT_FOUND,
                param,
            )
        self._chats.move_to_end(answer)
        return self._chats[answer]
