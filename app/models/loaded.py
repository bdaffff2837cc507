"""A model ready to answer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from app.models.request_queue import RequestQueue
from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.text.chat_template import ChatTemplate
from py_engine.text.tokenizer import Tokenizer


@dataclass
class Loaded:
    """A model ready to answer; without an engine it only has its vocabulary and template."""

    id: str
    header: Header
    tokenizer: Tokenizer
    template: ChatTemplate
    engine: Any = None
    notices: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)  # milliseconds
    source_stats: Callable[[], dict[str, Any]] = dict
    grammars: Any = None  # app.answers.grammar.Grammars, made when an answer's form is first asked for
    options: Any = None  # app.models.loading.Options that it was loaded with
    queue: RequestQueue = field(init=False)
    pins: int = 0  # requests that run on it or wait for their turn: it stays loaded until they are through
    used: int = 0  # when it was last asked for, in requests counted by app.models.registry.Models
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _breakers: dict[tuple[str, ...], tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = RequestQueue(lambda: self.engine.parallel if self.engine is not None else 1)

    def engine_or_error(self) -> Any:
        """The engine; model_not_loaded when only the vocabulary is there."""
        if self.engine is None:
            raise WispError(
                f"Only the vocabulary of {self.id} is loaded. Load it with its weights.", "model_not_loaded"
            )
        return self.engine

    @property
    def memory(self) -> dict[str, int]:
        """Bytes it takes of the device, by pool."""
        return dict(self.engine.stats().get("memory") or {}) if self.engine is not None else {}

    @property
    def bytes(self) -> int:
        """What it takes of the device in all."""
        return sum(self.memory.values())

    def unpin(self) -> None:
        """A request is through with it."""
        self.pins -= 1
        if not self.pins:
            self._idle.set()

    async def idle(self) -> None:
        """Until no request needs it."""
        while self.pins:
            self._idle.clear()
            await self._idle.wait()

    async def close(self) -> None:
        """Gives its memory back; nobody may need it any more."""
        if self.grammars is not None:
            self.grammars.close()
        if self.engine is not None:
            await self.engine.unload()

    def tokens_with(self, words: tuple[str, ...]) -> tuple[int, ...]:
        """Ids of the tokens whose text has one of the words in it."""
        if words not in self._breakers:
            wanted = [word.encode() for word in words]
            pieces = ((i, self.tokenizer.piece(i)) for i in range(len(self.tokenizer)))
            self._breakers[words] = tuple(i for i, piece in pieces if any(word in piece for word in wanted))
        return self._breakers[words]

    def check_ids(self, ids: list[int], param: str) -> None:
        """Refuses ids outside the vocabulary."""
        size = len(self.tokenizer)
        bad = next((i for i in ids if not 0 <= i < size), None)
        if bad is not None:
            raise WispError(f"{bad} is not a token id: the vocabulary has {size}.", "invalid_value", param=param)
