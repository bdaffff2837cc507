"""Tokenizers against llama.cpp's answers on four real vocabularies and three toy ones, every case exact."""

import codecs
import json
import random
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from py_engine.errors import WispError
from py_engine.files.gguf_header import parse
from py_engine.text.pretokenize import pretokenizer
from py_engine.text.tokenizer import Tokenizer, load_tokenizer
from py_engine.text.tokenizers import merge as merging
from py_engine.text.tokenizers import text_cache
from py_engine.text.tokenizers.merge import HEAP_LENGTH, merge
from py_engine.text.tokenizers.text_cache import TextCache

GOLDEN = Path(__file__).parents[1] / "golden" / "vocab"
REAL = ["llama-bpe", "qwen2", "llama-spm", "bert-bge"]
NAMES = [*REAL, "plamo2", "plamo3", "rwkv"]


@cache
def metadata(name: str) -> dict[str, Any]:
    data = next(GOLDEN.glob(f"*-{name}.gguf")).read_bytes()
    return parse(data, len(data)).metadata


@cache
def tokenizer(name: str) -> Tokenizer:
    return load_tokenizer(metadata(name))


@cache
def golden(name: str) -> dict[str, Any]:
    return json.loads((GOLDEN / f"{name}.json").read_text())


@pytest.mark.parametrize("name", NAMES)
def test_encodes_as_llama_cpp(name: str) -> None:
    t = tokenizer(name)
    cases = [c for c in golden(name)["encode"] if "text" in c]
    assert len(cases) > 200
    for c in cases:
        assert t.encode(c["text"], c["add_special"], c["parse_special"]) == c["ids"], c


@pytest.mark.parametrize("name", REAL)
def test_llama_cpp_own_cases(name: str) -> None:
    path = GOLDEN / f"ggml-vocab-{name}.gguf"
    texts = Path(f"{path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = Path(f"{path}.out").read_text().split("\n")
    pairs = [(text, [int(i) for i in line.split()]) for text, line in zip(texts, lines, strict=False)]
    assert len(pairs) > 30
    for text, ids in pairs:
        assert tokenizer(name).encode(text) == ids, text


@pytest.mark.parametrize("name", NAMES)
def test_decodes_as_llama_cpp(name: str) -> None:
    t = tokenizer(name)
    for c in golden(name)["decode"]:
        assert [t.piece(i).hex() for i in c["ids"]] == c["pieces_hex"]
        assert t.decode(c["ids"]) == c["text"]
        stream = t.stream(special=True)
        assert [stream.push(i) for i in c["ids"]] + [stream.finish()] == c["stream"]


@pytest.mark.parametrize("name", NAMES)
def test_flags_and_special_tokens(name: str) -> None:
    t, g = tokenizer(name), golden(name)
    assert (t.add_bos, t.add_eos, len(t)) == (g["add_bos"], g["add_eos"], g["n_tokens"])
    named = {t.vocab.texts[i]: i for i in t.vocab.special_ids if t.vocab.types[i] != 2}
    assert dict(sorted(named.items(), key=lambda kv: kv[1])[:300]) == g["special"]


def test_end_tokens() -> None:
    assert tokenizer("llama-bpe").eog_ids == {128001, 128009}
    assert {151643, 151645} <= tokenizer("qwen2").eog_ids
    assert tokenizer("llama-spm").eog_ids == {2}


def test_stream_hides_control_tokens_and_holds_back_half_characters() -> None:
    t = tokenizer("qwen2")
    ids = t.encode("<|im_start|>é😀<|im_end|>", parse_special=True)
    stream = t.stream()
    shown = [stream.push(i) for i in ids]
    assert "".join(shown) + stream.finish() == "é😀"
    assert shown[0] == shown[-1] == ""
    cut = t.encode("🦩")[:1]
    stream = t.stream()
    assert [stream.push(cut[0]), stream.finish()] == ["", "\ufffd"]


def test_stream_strips_the_prefixed_space_once() -> None:
    t = tokenizer("llama-spm")
    ids = t.encode("Hello  there")
    stream = t.stream(strip_space=True)
    assert "".join(map(stream.push, ids)) == "Hello  there"
    stream = t.stream()
    assert "".join(map(stream.push, ids)) == " Hello  there"


def test_lone_surrogates_become_replacement_characters() -> None:
    t = tokenizer("qwen2")
    assert t.encode("a\ud83db") == t.encode("a\ufffdb")


@pytest.mark.parametrize("name", ["llama-bpe", "qwen2"])
def test_round_trip(name: str) -> None:
    t, rng = tokenizer(name), random.Random(5)
    for _ in range(200):
        text = "".join(rng.choice("aB 1é日😀\n\t'.,") for _ in range(rng.randint(1, 50)))
        data = b"".join(map(t.piece, t.encode(text)))
        assert codecs.decode(data, "utf-8") == text


def test_heap_merge_equals_the_list_merge() -> None:
    rng = random.Random(3)
    pairs = {"".join(rng.choice("ab") for _ in range(rng.randint(1, 3))) for _ in range(30)}
    priority = {f"{a} {b}": float(rng.randrange(50)) for a in pairs for b in pairs if rng.random() < 0.5}
    for _ in range(200):
        text = [rng.choice("ab") for _ in range(HEAP_LENGTH - 1)]
        short = merge(list(text), priority, " ")
        long = merge([*text, *("#" * 5)], priority, " ")  # a longer list, with symbols that never merge
        assert long == [*short, *("#" * 5)]


def random_merges(rng: random.Random) -> tuple[dict[str, float], str]:
    """(priorities, their joiner), as training makes them, in any order, or with many that are equal."""
    joiner, kind = rng.choice((" ", "")), rng.choice(("trained", "shuffled", "equal"))
    if rng.random() < 0.3:  # runs of one symbol that are equally good, as spaces are, and one that is not
        odd = {"a" * rng.randrange(2, 40): rng.choice((0.5, 1.0, 2.0))} if rng.random() < 0.4 else {}
        return {"a" * n: 1.0 for n in range(1, rng.randrange(3, 20))} | odd, ""
    known, keys = ["a", "b", "c"], list[str]()
    for _ in range(rng.choice((3, 10, 40))):
        left, right = rng.choice(known), rng.choice(known)
        if len(left + right) <= 12:
            keys.append(left + joiner + right)
            known.append(left + right)
    if kind == "shuffled":
        rng.shuffle(keys)
    return {key: float(rng.randrange(3) if kind == "equal" else rank) for rank, key in enumerate(keys)}, joiner


def test_joining_what_repeats_at_once_equals_the_merges_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng, joined = random.Random(4), 0
    monkeypatch.setattr(merging, "RUN_LENGTH", HEAP_LENGTH)
    for _ in range(400):
        priority, joiner = random_merges(rng)
        period = "".join(rng.choices("abc"[: rng.randrange(1, 4)], k=rng.choice((1, 1, 2, 3, 7))))
        text = [*(period * 400)[: rng.choice((257, 300, 613))]]
        if rng.random() < 0.4:
            text.insert(rng.randrange(len(text)), "c")
        joined += len(merging._merge_runs(list(text), priority, joiner)) < len(text)
        assert merge(list(text), priority, joiner) == merging._merge_with_heap(list(text), priority, joiner)
    assert joined > 80


@pytest.mark.slow
@pytest.mark.parametrize("name", ["qwen2", "llama-spm", "bert-bge"])
def test_a_megabyte_of_one_character_is_not_slow(name: str) -> None:
    t = tokenizer(name)
    for text in ("a", " ", "7", "ab"):
        started = time.process_time()
        t.encode(text * (1_000_000 // len(text.encode())))
        assert time.process_time() - started < 1.5, text


@pytest.mark.slow
def test_a_word_without_end_is_not_slow() -> None:
    t = tokenizer("qwen2")
    for text in ("a" * 200_000, "=-" * 100_000, "哈" * 60_000):
        assert b"".join(map(t.piece, t.encode(text))).decode() == text


def test_pretokenizers_lose_nothing() -> None:
    from py_engine.text.pretokenize import _NAMES

    text = "".join(c["text"] for c in golden("qwen2")["encode"] if "text" in c)[:20_000]
    for name in _NAMES:
        assert "".join(pretokenizer(name).split(text)) == text, name


def test_pretokenizer_splits() -> None:
    def split(name: str, text: str) -> list[str]:
        return pretokenizer(name).split(text)

    assert split("llama-bpe", "It's 12345  x\n\n y!") == ["It", "'s", " ", "123", "45", " ", " x", "\n\n", " y", "!"]
    assert split("qwen2", "x12") == ["x", "1", "2"]
    assert split("gpt-2", "don't  12 !?") == ["don", "'t", " ", " 12", " !?"]
    assert split("smollm", "a 12") == ["a", " ", "1", "2"]
    assert split("tekken", "camelCaseXML 12") == ["camel", "Case", "XML", " ", "1", "2"]
    assert split("gpt-4o", "HTMLParser's 1234") == ["HTMLParser's", " ", "123", "4"]
    assert split("deepseek-v3", "12345 日本 a.b") == ["123", "45", " ", "日本", " a", ".b"]
    assert split("superbpe", "1234567") == ["1", "234", "567"]
    assert split("afmoe", "1234567 x") == ["1", "234", "567", " x"]
    assert split("default", "a+b 1234") == ["a", "+", "b", " ", "123", "4"]
    for name in ("deepseek-llm", "deepseek-coder"):  # an ideographic space belongs to what follows
        assert split(name, "a\u3000^日本\u3000x\u3000、\u3000!") == [
            "a",
            "\u3000^",
            "日本",
            "\u3000x",
            "\u3000",
            "、",
            "\u3000!",
        ]


def test_bos_whatever_the_metadata_says() -> None:
    names = {"tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.add_bos_token": False}
    for pre, bos in (("granite-embed-multi-311m", [0]), ("gemma4", [0]), ("qwen2", [])):
        assert load_tokenizer({**metadata("qwen2"), **names, "tokenizer.ggml.pre": pre}).encode("", True) == bos


def test_word_pieces_with_apostrophes_and_unassigned_characters() -> None:
    t = tokenizer("bert-bge")
    assert t.decode(t.encode("a' ' b")) == " a'' b"
    assert t.encode("a\u0378b") == [t.vocab.special("unknown")]


def test_unknown_pretokenizer_is_default_with_a_notice() -> None:
    t = load_tokenizer({**metadata("qwen2"), "tokenizer.ggml.pre": "from-the-future"})
    assert len(t.notices) == 1
    assert "from-the-future" in t.notices[0]
    assert not tokenizer("qwen2").notices


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"tokenizer.ggml.model": "none"}, "unsupported_tokenizer"),
        ({"tokenizer.ggml.model": "plamo2"}, "corrupt_header"),
        ({"tokenizer.ggml.model": None}, "missing_metadata"),
        ({"tokenizer.ggml.tokens": None}, "missing_metadata"),
        ({"tokenizer.ggml.merges": None}, "missing_metadata"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "corrupt_header"),
        ({"tokenizer.ggml.model": "llama"}, "missing_metadata"),
    ],
)
def test_bad_metadata(change: dict[str, Any], code: str) -> None:
    with pytest.raises(WispError) as error:
        load_tokenizer({**metadata("qwen2"), **change})
    assert error.value.code == code


def test_ids_outside_the_vocabulary() -> None:
    for ids in ([-1], [10**9]):
        with pytest.raises(WispError) as error:
            tokenizer("qwen2").decode(ids)
        assert error.value.code == "invalid_value"


def test_a_long_text_is_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turns of a chat that were encoded before are not encoded again; what is cached is bounded."""
    encoded: list[str] = []
    cache = TextCache(lambda text, first: encoded.append(text) or [len(text), int(first)])  # type: ignore[func-returns-value]
    long, longer = "a" * 300, "b" * 700
    assert cache.encode(long, True) == cache.encode(long, True) == [300, 1]
    assert cache.encode(long, False) == [300, 0]
    assert cache.encode("short", True) == cache.encode("short", True) == [5, 1]
    assert encoded == [long, long, "short", "short"]
    monkeypatch.setattr(text_cache, "MOST_CHARS", 1000)
    cache.encode(longer, True)  # drops the least recently used one
    assert cache.encode(long, False) == [300, 0]
    assert len(encoded) == 5
    assert cache.encode(long, True) == [300, 1]
    assert len(encoded) == 6
