"""Requests of other APIs as OpenAI's: what answers them, and what makes their answers of the chunks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from app.openai.answers import Identity
from app.openai.fields import Body, Json
from app.openai.requests import ChatRequest, CompletionRequest

Emit = Callable[[dict[str, Json]], None]
MAX_STOPS = 256  # stop strings of a request; OpenAI allows 4


class Answer(Protocol):
    """An answer in its API's form, made of OpenAI's chunks."""

    @property
    def body(self) -> Json:
        """The whole answer, after the last chunk."""

    def chunk(self, chunk: dict[str, Json]) -> None:
        """Add the next chunk; the last one has the usage."""


@dataclass(frozen=True)
class Converted:
    """A request. `request` is streamed, with usage; `streamed`: what the original asked for.

    `answer(model, emit, identity)`: its Answer; `emit` receives the events of a streamed one.
    """

    body: Body
    request: ChatRequest | CompletionRequest
    streamed: bool
    answer: Callable[[str, Emit | None, Identity], Answer]
