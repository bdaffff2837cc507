"""A model ready to answer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from py_engine.chat_template import ChatTemplate
from py_engine.errors import WispError
from py_engine.gguf_header import Header
from py_engine.tokenizer import Tokenizer


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
    grammars: Any = None  # app.grammar.Grammars, made when an answer's form is first asked for
    _breakers: dict[tuple[str, ...], tuple[int, ...]] = field(default_factory=dict)

    def engine_or_error(self) -> Any:
        """The engine; model_not_loaded when only the vocabulary is there."""
        if self.engine is None:
            raise WispError(
                f"Only the vocabulary of {self.id} is loaded. Load it with its weights.", "model_not_loaded"
            )
        return self.engine

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
