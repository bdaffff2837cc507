"""The mask engine is compiled code that may abort. Then the next answer gets another instance of it."""

from typing import Any

import pytest

from app.answers import grammar
from app.answers.grammar import Grammars, Instance
from app.constrain.ebnf import GrammarText
from py_engine.errors import WispError


class Tokenizer:
    """A tokenizer without tokens."""

    eog_ids = frozenset([0])

    def __len__(self) -> int:
        return 0


class Model:
    """A model with that tokenizer."""

    tokenizer, engine = Tokenizer(), None


class Compiler:
    """The compiler of an instance; "abort" ends the instance, after which every call fails."""

    def __init__(self) -> None:
        self.alive, self.trials, self.damaged = True, self, False

    def drop(self) -> None:
        pass

    async def compile(self, rules: str, exact: str) -> "Compiler":
        self.alive &= rules != "abort"
        if not self.alive:
            raise RuntimeError("Aborted()")
        return self

    def close(self) -> None:
        if not self.alive:
            raise RuntimeError("Aborted()")


async def test_an_abort_of_the_mask_engine_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    instances: dict[int, Compiler] = {}

    async def load(number: int) -> Compiler:
        return instances.setdefault(number, Compiler())

    async def open_vocabulary(module: Compiler, *_: Any) -> Compiler:
        return module

    monkeypatch.setattr(grammar, "open_vocabulary", open_vocabulary)
    first, second = Grammars(Model()), Grammars(Model())  # type: ignore[arg-type]
    before = Instance.number
    for grammars in (first, second):
        await grammars.compiled(GrammarText("good"), frozenset(), load)
    with pytest.raises(WispError, match="Aborted"):
        await first.compiled(GrammarText("abort"), frozenset(), load)
    for grammars in (first, second, first):  # the other model's compiler was of the same instance
        await grammars.compiled(GrammarText("good"), frozenset(), load)
    assert list(instances) == [before, before + 1]
    first.close()
