"""The mask engine's vocabulary, and the masks that it returns."""

from pathlib import Path
from typing import Any

import pytest

from app.answers.grammar import Compiled, Grammars, Matcher, compiled, expect
from app.answers.token_bytes import TokenBytes
from app.constrain.ebnf import GrammarText
from app.models.loaded import Loaded
from app.openai.formats import Format
from py_engine.errors import WispError
from py_engine.files.gguf_header import parse
from py_engine.text.tokenizer import Tokenizer, load_tokenizer
from tests.support.gguf_bytes import MINI

VOCAB = Path(__file__).parents[1] / "golden" / "vocab"


def tokenizer(path: Path) -> Tokenizer:
    data = path.read_bytes()
    return load_tokenizer(parse(data, len(data)).metadata)


def pieces(found: Tokenizer, shown: frozenset[int] = frozenset()) -> list[bytes]:
    tokens = TokenBytes(found, shown)
    assert len(tokens.ends) == len(found)
    return [tokens.data[a:b] for a, b in zip([0, *tokens.ends[:-1]], tokens.ends, strict=True)]


@pytest.mark.parametrize("name", ["llama-bpe", "llama-spm", "mini"])
def test_tokens_are_their_bytes(name: str) -> None:
    found = tokenizer(MINI if name == "mini" else VOCAB / f"ggml-vocab-{name}.gguf")
    known = pieces(found)
    text = 'Hello {"a": 1}\n日本 🚀 ü'
    ids = found.encode(text)
    joined = b"".join(known[i] for i in ids)
    assert joined.decode().removeprefix(" " if found.add_space_prefix else "") == text
    for token in found.eog_ids:
        assert known[token] == b""
    assert all(byte not in piece for piece in known for byte in (0xC0, 0xC1, 0xF5, 0xFE, 0xFF))
    hidden = [i for i in range(len(found)) if found.hidden(i)]
    assert hidden
    assert not any(known[i] for i in hidden)
    assert sum(map(bool, known)) > 0.95 * (len(known) - len(hidden)) - 20
    marker = next(i for i in hidden if found.piece(i).isascii() and found.piece(i))
    assert pieces(found, frozenset([marker]))[marker] == found.piece(marker)


class Trials:
    """A stand-in for those of grammar_trial.js: whether a worker is prepared, and what was tried."""

    def __init__(self) -> None:
        self.prepared = False
        self.tried: list[tuple[str, bool]] = []

    def prepare(self) -> None:
        self.prepared = True

    def drop(self) -> None:
        self.prepared = False

    async def isQuick(self, text: str) -> bool:
        self.tried.append((text, self.prepared))
        self.prepared = False
        return text != "slow"


class Engine:
    """A stand-in for grammar.js's matcher, with the parts that these tests use."""

    def __init__(self, jump: str = "") -> None:
        self.jump, self.closed, self.slow = jump, 0, False
        self.trials, self.damaged = Trials(), False
        self.cached = dict[str, list[int]]()

    def forced(self) -> str:
        return self.jump

    def cacheForced(self, text: str, ids: list[int]) -> None:
        self.cached[text] = ids

    def accept(self, token: int) -> bool:
        return token < 10

    tryAccept = accept

    def close(self) -> None:
        self.closed += 1


def matcher_of(engine: Engine, found: Tokenizer) -> Matcher:
    return Matcher(engine, found, TokenBytes(found, frozenset()))


async def test_forced_tokens_that_a_longer_token_may_replace_are_left_to_the_model() -> None:
    """' ' and '{' are two tokens, and ' {"', which models write, is one."""
    found = tokenizer(MINI)
    space, opened, begun = (found.encode(text) for text in (" ", " {", ' {"'))
    assert (opened[:1], len(opened), len(begun)) == (space, 2, 1)
    head = '"arguments":'
    assert await matcher_of(Engine(f"{head} {{"), found).forced() == found.encode(head)


def test_texts_with_which_a_longer_token_begins() -> None:
    found = TokenBytes(tokenizer(MINI), frozenset())
    assert all(found.goes_on(text) for text in (b" ", b" {", b" capita", b"{"))
    assert not any(found.goes_on(text) for text in (b" capital of", b'{"capital', b"\xff"))
    assert found.certain([]) == found.certain([b"x"]) == 0
    assert found.certain([b'{"', b"capital", b'":', b" ", b"{"]) == 3


async def test_forced_text_becomes_all_tokens_except_the_last() -> None:
    found = tokenizer(MINI)
    text = '{"capital": "'
    engine = Engine(text)
    ids = await matcher_of(engine, found).forced()
    assert engine.cached == {text: ids}, "with which masked.js can go on without Python"
    assert found.decode(ids) == text[: len(found.decode(ids))]
    assert ids == found.encode(text)[:-1]
    for jump in ("", "a", "\ufffdcapital"):  # the first bytes of a character have come
        assert await matcher_of(Engine(jump), found).forced() == []
    assert await matcher_of(Engine(text + "\ufffd"), found).forced() == ids
    spaced = tokenizer(VOCAB / "ggml-vocab-llama-spm.gguf")  # its encoding begins with a space that the text lacks
    assert await matcher_of(Engine("capital of"), spaced).forced() == []


async def test_a_refused_token_outside_the_mask_is_an_internal_error() -> None:
    matcher = matcher_of(Engine(), tokenizer(MINI))
    await matcher.accept(5)
    assert await matcher.try_accept(5)
    assert not await matcher.try_accept(50)
    with pytest.raises(WispError) as error:
        await matcher.accept(50)
    assert error.value.code == "internal_error"


async def test_an_answer_whose_tokens_take_longer_and_longer_ends_with_an_error() -> None:
    engine = Engine()
    matcher = matcher_of(engine, tokenizer(MINI))
    assert await matcher.try_accept(5)
    engine.slow = True
    for call in (matcher.try_accept(5), matcher.mask(), matcher.judge("")):
        with pytest.raises(WispError, match="longer and longer") as error:
            await call
        assert error.value.code == "unsupported_parameter"


async def test_a_matcher_that_is_too_slow_at_the_beginning_is_closed() -> None:
    class Slow(Engine):
        async def matcher(self) -> Engine:
            return self

        def acceptText(self, text: str) -> bool:
            return not self.slow

    engine = Slow()
    found = tokenizer(MINI)
    compiled = Compiled(engine, found, TokenBytes(found, frozenset()))
    await compiled.matcher("begun")
    assert engine.closed == 0
    engine.slow = True
    with pytest.raises(WispError, match="longer and longer"):
        await compiled.matcher("begun")
    assert engine.closed == 1


async def test_grammars_are_compiled_once_and_closed() -> None:
    made: list[Any] = []

    class Compiler(Engine):
        async def compile(self, rules: str, exact: str) -> Engine:
            if rules == "bad":
                raise RuntimeError("aborted")
            made.append(Engine())
            return made[-1]

    found = tokenizer(MINI)
    grammars = Grammars(Loaded("mini", None, found, None))  # type: ignore[arg-type]
    compiler = Compiler()
    grammars._compilers[frozenset()] = compiler

    async def load(instance: int) -> Any:
        raise AssertionError("the compiler is there")

    first = await grammars.compiled(GrammarText("a"), frozenset(), load)
    assert isinstance(first, Compiled)
    assert await grammars.compiled(GrammarText("a"), frozenset(), load) is first
    looser = GrammarText("a")
    looser.exact = "b"
    assert await grammars.compiled(looser, frozenset(), load) is not first
    for i in range(30):
        await grammars.compiled(GrammarText(f"r{i}"), frozenset(), load)
    assert [m.closed for m in made[:4]] == [0, 1, 1, 1]  # only the last ones stay open, and what a request still has
    del first
    assert made[0].closed == 1
    with pytest.raises(WispError, match="cannot be compiled") as error:
        await grammars.compiled(GrammarText("bad"), frozenset(), load)
    assert error.value.type == "server_error"
    grammars.close()
    assert all(m.closed == 1 for m in [*made, compiler])


async def test_a_grammar_whose_answer_ended_the_mask_engine_gets_another_instance() -> None:
    """It stays cached, and each request would fail with it."""
    loaded: list[int] = []

    class Compiler(Engine):
        async def compile(self, rules: str, exact: str) -> Engine:
            return Engine()

    class Module:
        async def open(self, *given: Any) -> Compiler:
            return Compiler()

    async def load(instance: int) -> Any:
        loaded.append(instance)
        return Module()

    async def open_vocabulary(module: Any, *given: Any) -> Any:
        return await module.open(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.answers.grammar.open_vocabulary", open_vocabulary)
        grammars = Grammars(Loaded("mini", None, tokenizer(MINI), None))  # type: ignore[arg-type]
        first = await grammars.compiled(GrammarText("a"), frozenset(), load)
        grammars._compilers[frozenset()].damaged = True
        again = await grammars.compiled(GrammarText("a"), frozenset(), load)
        assert again is not first
        assert await grammars.compiled(GrammarText("a"), frozenset(), load) is again
    assert len(set(loaded)) == len(loaded) == 2


async def test_a_grammar_of_unsure_cost_is_tried_first_while_others_compile() -> None:
    tried: list[str] = []

    class Quick(Trials):
        async def isQuick(self, text: str) -> bool:
            if text == "slow":  # one that passed does not wait
                await grammars.compiled(quick, frozenset(), load)
            assert isinstance(await grammars.compiled(GrammarText("other"), frozenset(), load), Compiled)
            tried.append(text)
            return text != "slow"

    class Compiler(Engine):
        async def compile(self, text: str, exact: str) -> Engine:
            assert text != "slow"
            return Engine()

    async def load(instance: int) -> Any:
        raise AssertionError("the compiler is there")

    grammars = Grammars(Loaded("mini", None, tokenizer(MINI), None))  # type: ignore[arg-type]
    compiler = Compiler()
    compiler.trials = Quick()
    grammars._compilers[frozenset()] = compiler
    quick, slow = GrammarText("quick"), GrammarText("slow")
    for text in (quick, slow):
        text.unsure = True
        for _ in range(2):
            if text == quick:
                await grammars.compiled(text, frozenset(), load)
                continue
            with pytest.raises(WispError, match="this device too long") as error:
                await grammars.compiled(text, frozenset(), load)
            assert error.value.code == "unsupported_parameter"
    assert tried == ["quick", "slow", "slow"]


async def test_the_worker_of_a_trial_starts_before_the_grammar_is_read() -> None:
    class Compiler(Engine):
        async def compile(self, text: str, exact: str) -> Engine:
            return Engine()

    async def load(instance: int) -> Any:
        raise AssertionError("the compiler is there")

    model = Loaded("mini", None, tokenizer(MINI), None)  # type: ignore[arg-type]
    form, second = Format("grammar", 'root ::= "a"'), Format("grammar", 'root ::= "b"')
    expect(model, form, frozenset())  # nothing is open yet
    model.grammars = Grammars(model)
    expect(model, form, frozenset())
    compiler = model.grammars._compilers[frozenset()] = Compiler()
    trials = compiler.trials
    for other in (None, Format("json_object"), Format("regex", "a")):
        expect(model, other, frozenset())
    expect(model, form, frozenset([1]))
    prepared = [trials.prepared]
    expect(model, form, frozenset())
    prepared.append(trials.prepared)  # and now the grammar would be read
    await compiled(model, GrammarText("sure"), frozenset(), load)
    prepared.append(trials.prepared)
    unsure = GrammarText("unsure")
    unsure.unsure = True
    expect(model, form, frozenset())  # which was sure
    prepared.append(trials.prepared)
    expect(model, second, frozenset())
    await compiled(model, unsure, frozenset(), load)
    assert trials.tried == [("unsure", True)]
    expect(model, second, frozenset())  # which is compiled: no trial
    assert [*prepared, trials.prepared] == [False, True, False, False, False]
    await compiled(model, unsure, frozenset(), load)
    assert len(trials.tried) == 1
