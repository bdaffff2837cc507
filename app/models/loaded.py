"""A loaded model with its tokenizer, template, engine and queue."""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from app.models.adapters import Adapters
from app.models.slots import Slots
from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.generate.request_queue import RequestQueue
from py_engine.text.chat_template import ChatTemplate
from py_engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from py_engine.engine import Engine

MAX_BREAKERS = 8  # sets of sequence breakers whose tokens are remembered


@dataclass
class Loaded:
    """A model ready to answer. Without an engine it has its vocabulary and template only."""

    id: str
    header: Header
    tokenizer: Tokenizer
    template: ChatTemplate
    engine: "Engine | None" = None
    projector: Any = None  # app.models.projector.LoadedProjector; None: it reads text only
    adapters: Adapters = field(default_factory=lambda: Adapters((), None))
    notices: list[str] = field(default_factory=list)
    timings: dict[str, float] = field(default_factory=dict)  # milliseconds
    source_stats: Callable[[], dict[str, Any]] = dict
    grammars: Any = None  # app.answers.grammar.Grammars, made on the first constrained answer
    options: Any = None  # app.models.loading.Options of its load
    tell_users: Callable[[str], None] = lambda text: None
    queue: RequestQueue = field(init=False)
    slots: Slots = field(default_factory=Slots)
    pins: int = 0  # requests that run on it or wait for it; it is not evicted before they end
    used: int = 0  # the number of the last request for it, for least recently used
    _idle: asyncio.Event = field(default_factory=asyncio.Event)
    _breakers: dict[tuple[str, ...], tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.queue = RequestQueue(lambda: self.engine.parallel if self.engine is not None else 1)

    def engine_or_error(self) -> "Engine":
        """The engine. WispError model_not_loaded if only the vocabulary is loaded, or the model was unloaded."""
        if self.engine is None:
            raise WispError(
                f"{self.id} is not loaded with its weights: only its vocabulary is, or it was unloaded. Load it again.",
                "model_not_loaded",
            )
        return self.engine

    def ended(self, prompt: list[int]) -> list[int]:
        """A prompt's ids. One that an encoder reads ends with EOS, if the model uses it."""
        eos = self.tokenizer.eos_id if self.tokenizer.add_eos else None
        if eos is None or prompt[-1:] == [eos] or self.engine is None or not self.engine.plan.encodes_prompts:
            return prompt
        return [*prompt, eos]

    def notify(self, text: str) -> None:
        """Tell the users something that happened after the load; stats() tells it from then on."""
        self.notices.append(text)
        self.tell_users(f"{self.id}: {text}")

    @property
    def memory(self) -> dict[str, int]:
        """Bytes on the device, by pool."""
        own = dict(self.engine.stats().get("memory") or {}) if self.engine is not None else {}
        if self.projector is not None:
            own["projector"] = sum(self.projector.memory.values())
        return own

    @property
    def senses(self) -> dict[str, bool]:
        """Which media its prompts may have."""
        projector = self.projector.projector if self.projector is not None else None
        return {"image": bool(projector and projector.vision), "audio": bool(projector and projector.audio)}

    @property
    def bytes(self) -> int:
        """Bytes on the device in total."""
        return sum(self.memory.values())

    def unpin(self) -> None:
        """Release the pin of a request that ended."""
        self.pins -= 1
        if not self.pins:
            self._idle.set()

    async def idle(self) -> None:
        """Wait until no request pins the model."""
        while self.pins:
            self._idle.clear()
            await self._idle.wait()

    async def close(self) -> None:
        """Free its memory. No request may use it afterwards."""
        if self.grammars is not None:
            self.grammars.close()
        try:
            if self.projector is not None:
                await self.projector.close()
        finally:
            if self.engine is not None:
                await self.engine.unload()

    def tokens_with(self, words: tuple[str, ...]) -> tuple[int, ...]:
        """Ids of the tokens whose text contains one of the words."""
        if words not in self._breakers:
            while len(self._breakers) >= MAX_BREAKERS:
                del self._breakers[next(iter(self._breakers))]
            contains = re.compile(b"|".join(re.escape(word.encode("utf-8", "replace")) for word in words)).search
            ids = range(len(self.tokenizer))
            self._breakers[words] = tuple(i for i in ids if contains(self.tokenizer.piece(i)))
        return self._breakers[words]

    def check_ids(self, ids: list[int], param: str) -> None:
        """Raise WispError invalid_value for ids outside the vocabulary."""
        size = len(self.tokenizer)
        if ids and not 0 <= min(ids) <= max(ids) < size:
            bad = next(i for i in ids if not 0 <= i < size)
            raise WispError(f"{bad} is not a token id: the vocabulary has {size}.", "invalid_value", param=param)
