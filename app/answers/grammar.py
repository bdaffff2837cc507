"""Constrained answers: grammars compiled for a model's vocabulary, and the engine's constraint.

The masks come from grammar.js (XGrammar). This file passes it the vocabulary as bytes and caches compiled grammars.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any
from weakref import finalize

from app.answers.token_bytes import TokenBytes
from app.constrain.ebnf import Grammar, GrammarText, quick_rules
from app.constrain.grammar_cache import cached
from app.constrain.rules import form_rule
from app.models.loaded import Loaded
from app.openai.formats import Format
from py_engine.errors import SERVER_ERROR, WispError
from py_engine.text.tokenizer import Tokenizer

Load = Callable[[int], Awaitable[Any]]  # imports an instance of grammar.js, which has `open`
Key = tuple[GrammarText, str, frozenset[int]]  # a grammar, its exact one, the control tokens whose texts it contains
MAX_CACHED = 12  # compiled grammars per model; with 128k tokens, each takes some 17 MB
TOO_SLOW = (
    "The form of the answer takes this device too long. Use fewer or shorter repetitions, and smaller character "
    "classes. In a grammar, let each text fit in one way: avoid rules like a ::= a a, and repetitions of what may be "
    "empty."
)


def rules_of(form: Format) -> GrammarText:
    """The grammar of an answer in this format."""

    def make(grammar: Grammar) -> list[str]:
        grammar.counts_limits = form.kind == "json_schema"
        return [form_rule(grammar, form)]

    def write() -> GrammarText:
        grammar, (root,) = quick_rules(make)
        return grammar.text(root)

    return cached([*vars(form).values()], write)


async def compiled(model: Loaded, rules: GrammarText, shown: frozenset[int], load: Load) -> Compiled:
    """Compile a grammar for a model. `shown`: control tokens whose texts the grammar contains."""
    if model.grammars is None:
        model.grammars = Grammars(model)
    grammars: Grammars = model.grammars
    return await grammars.compiled(rules, shown, load)


def expect(model: Loaded, form: Format | None, shown: frozenset[int]) -> None:
    """Start the worker in which a form may be tried, so that it is ready when the form has been read.

    The estimates leave few forms but grammars to a trial. The worker ends soon if nothing is tried.
    """
    if form is not None and form.kind == "grammar" and model.grammars is not None:
        model.grammars.expect(str(form.value), shown)


class Instance:
    """Which instance of grammar.js compiles. When one has aborted, its memory is lost, and the next one is imported."""

    number = 0


@contextmanager
def _survived() -> Iterator[None]:
    """Turn anything that grammar.js throws into an error of the request: it has aborted, or is out of memory."""
    try:
        yield
    except Exception as error:
        Instance.number += 1
        raise WispError(f"The grammar cannot be compiled: {error}", "internal_error", SERVER_ERROR) from error


class Grammars:
    """The compiled grammars of one model."""

    def __init__(self, model: Loaded) -> None:
        self._model = model
        self._compilers: dict[frozenset[int], Any] = {}
        self._tokens: dict[frozenset[int], TokenBytes] = {}  # for the control tokens that are shown
        self._cached: OrderedDict[Key, Compiled] = OrderedDict()
        self._expected: OrderedDict[tuple[str, frozenset[int]], None] = OrderedDict()  # texts whose worker was started
        self._instance = Instance.number
        self._one_at_a_time = asyncio.Lock()  # concurrent requests compile the same grammar once
        self._one_trial = asyncio.Lock()  # meanwhile, other grammars are compiled

    async def compiled(self, rules: GrammarText, shown: frozenset[int], load: Load) -> Compiled:
        """The compiled grammar; each grammar is compiled once. WispError where that takes this device too long."""
        if self._instance == Instance.number and any(compiler.damaged for compiler in self._compilers.values()):
            Instance.number += 1  # an answer's call has ended it
        key = (rules, rules.exact, shown)
        unsure = rules.unsure and key not in self._cached
        if not unsure and (compiler := self._open(shown)):
            compiler.trials.drop()
        async with self._one_trial if unsure else nullcontext():
            if unsure and key not in self._cached:  # another request may have tried it meanwhile
                await self._try(key, load)
            async with self._one_at_a_time:
                return await self._compiled(key, load)

    async def _try(self, key: Key, load: Load) -> None:
        """Compile a grammar elsewhere, where that can be ended."""
        rules, _, shown = key
        async with self._one_at_a_time:
            compiler = await self._opened(shown, load)
        if not await compiler.trials.isQuick(str(rules)):
            self._expected.clear()  # a form that is refused again is refused as quickly
            raise WispError(TOO_SLOW, "unsupported_parameter")

    async def _compiled(self, key: Key, load: Load) -> Compiled:
        rules, exact, shown = key
        if key not in self._cached or self._instance != Instance.number:
            compiler = await self._opened(shown, load)
            with _survived():
                made = await compiler.compile(str(rules), exact)
            self._cached[key] = Compiled(made, self._model.tokenizer, self._bytes(shown))
            while len(self._cached) > MAX_CACHED:
                self._cached.popitem(last=False)
        self._cached.move_to_end(key)
        return self._cached[key]

    def expect(self, text: str, shown: frozenset[int]) -> None:
        """Start the worker of the next trial, if the vocabulary is open and this text was not expected lately."""
        if (compiler := self._open(shown)) and (text, shown) not in self._expected:
            compiler.trials.prepare()
            self._expected[text, shown] = None
            while len(self._expected) > MAX_CACHED:
                self._expected.popitem(last=False)

    def _open(self, shown: frozenset[int]) -> Any:
        """The compiler for a vocabulary, or None where it is not open."""
        return self._compilers.get(shown) if self._instance == Instance.number else None

    async def _opened(self, shown: frozenset[int], load: Load) -> Any:
        """The compiler for a vocabulary, of the present instance."""
        if self._instance != Instance.number:
            self.close()
            self._instance = Instance.number
        if shown not in self._compilers:
            with _survived():
                self._compilers[shown] = await self._compiler(shown, await load(self._instance))
        return self._compilers[shown]

    async def _compiler(self, shown: frozenset[int], module: Any) -> Any:
        tokenizer = self._model.tokenizer
        engine = self._model.engine
        size = max(len(tokenizer), getattr(getattr(engine, "plan", None), "n_vocab", 0))
        return await open_vocabulary(module, self._bytes(shown), size, sorted(tokenizer.eog_ids))

    def _bytes(self, shown: frozenset[int]) -> TokenBytes:
        """The bytes of the model's tokens."""
        if shown not in self._tokens:
            self._tokens[shown] = TokenBytes(self._model.tokenizer, shown)
        return self._tokens[shown]

    def close(self) -> None:
        """Free the memory."""
        for found in (*self._cached.values(), *self._compilers.values()):
            with suppress(Exception):  # of an instance that has aborted
                found.close()
        self._cached.clear()
        self._compilers.clear()


async def open_vocabulary(module: Any, tokens: TokenBytes, size: int, stops: list[int]) -> Any:
    """grammar.js's compiler for a vocabulary."""
    from pyodide.ffi import to_js

    return await module.open(to_js(tokens.data), to_js(tokens.ends), size, to_js(stops))


class Compiled:
    """A grammar compiled for a vocabulary. Its memory is freed when nobody refers to it any more.

    The cache may drop it while a request still begins answers with it.
    """

    def __init__(self, made: Any, tokenizer: Tokenizer, tokens: TokenBytes) -> None:
        self._made, self._tokenizer, self._tokens = made, tokenizer, tokens
        self._freed = finalize(self, _free, made)

    async def matcher(self, begun: str = "") -> Matcher:
        """A matcher for one answer, or for the rest of one that has `begun`."""
        matcher = Matcher(await self._made.matcher(), self._tokenizer, self._tokens)
        try:
            if not matcher.begins(begun):
                what = "The message to continue does not fit the form of the answer; begin it as the form does."
                raise WispError(what, "invalid_value", param="continue_final_message")
        except BaseException:
            matcher.close()
            raise
        return matcher

    def close(self) -> None:
        """Free the memory now. Nobody may use it afterwards."""
        self._freed()


def _free(made: Any) -> None:
    with suppress(Exception):  # of an instance that has aborted
        made.close()


class Matcher:
    """The Constraint of one answer (py_engine/plan/sampling.py)."""

    def __init__(self, matcher: Any, tokenizer: Tokenizer, tokens: TokenBytes) -> None:
        self._matcher, self._tokenizer, self._tokens = matcher, tokenizer, tokens
        self.source = matcher

    async def mask(self) -> Any:
        """An Int32Array with a bit set for each token that may come next."""
        self._check_time()
        return await self._matcher.mask()

    async def accept(self, token: int) -> None:
        """Advance past a token."""
        if not self._matcher.accept(token):
            raise WispError(f"The grammar rejects token {token}.", "internal_error", SERVER_ERROR)

    async def try_accept(self, token: int) -> bool:
        """Advance past a token if it is allowed; returns whether it was."""
        self._check_time()
        return bool(self._matcher.tryAccept(token))

    async def forced(self) -> list[int]:
        """Tokens that must come next, except those at the end that the model may merge with what follows."""
        self._check_time()
        text = str(self._matcher.forced())
        if len(text) < 2:
            return []
        ids = self._written(text.partition("\ufffd")[0])  # U+FFFD stands for a part of a character
        self._matcher.cacheForced(text, ids)
        return ids

    def _written(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text) if len(text) > 1 else []
        pieces = [self._tokenizer.piece(token) for token in ids]
        count = self._tokens.certain(pieces)
        is_written = text.encode().startswith(b"".join(pieces[:count]))  # some tokenizers prepend a space
        return ids[:count] if is_written else []

    def _check_time(self) -> None:
        """Raise where the mask engine takes too long for this answer's tokens."""
        if self._matcher.slow:
            raise WispError(
                "The form can be read in too many ways: its tokens take longer and longer. Write the grammar so that "
                "each text fits it in one way; avoid rules like a ::= a a, and repetitions of what may be empty.",
                "unsupported_parameter",
            )

    def finished(self) -> bool:
        """Whether only the end may follow."""
        return bool(self._matcher.finished())

    def begins(self, text: str) -> bool:
        """Whether the answer may begin with a text; if so, it has."""
        accepted = not text or bool(self._matcher.acceptText(text))
        self._check_time()
        return accepted

    async def judge(self, text: str) -> dict[str, bool]:
        """{accepted: the answer may begin with the text, complete: it may end there}."""
        accepted = self.begins(text)
        return {"accepted": accepted, "complete": accepted and bool(await self._matcher.mayEnd())}

    def close(self) -> None:
        """Free the memory."""
        self._matcher.close()
