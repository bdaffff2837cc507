"""No text takes a tokenizer more than proportional time: ten times the text, about ten times the steps."""

import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.openai.sampling import sampling
from py_engine.errors import WispError
from py_engine.files.gguf_header import parse
from py_engine.text import pretokenize
from py_engine.text.pretokenize import pretokenizer
from py_engine.text.tokenizer import Tokenizer, load_tokenizer
from py_engine.text.tokenizers import ugm
from py_engine.text.tokenizers.prefix_index import MAX_NESTED
from py_engine.text.tokenizers.vocab import BYTE, CONTROL, NORMAL, USER_DEFINED, Vocab
from py_engine.text.tokenizers.wpm import WPM

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).parents[1] / "golden" / "vocab"
TEXTS = [
    "7",
    "a",
    "A",
    "é",
    "中",
    " ",
    "\n",
    "\t ",
    "<|",
    "'s",
    "1a",
    "aB",
    "a ",
    "…",
    " .",
    "\u0301",
    "٣",
    "_1",
    "▁",
    "²3",
]


def seconds(work: Callable[[], object]) -> float:
    started = time.process_time()
    work()
    return time.process_time() - started


def grows_linearly(work: Callable[[int], object], size: int) -> None:
    """Compare the time of 8 times the size. A quadratic algorithm would take 64 times as long."""
    small = max(min(seconds(lambda: work(size)) for _ in range(2)), 0.002)
    assert any(seconds(lambda: work(8 * size)) < 32 * small for _ in range(2))


@pytest.mark.parametrize("name", sorted(pretokenize._SPLITS))
def test_pretokenizers(name: str) -> None:
    split = pretokenizer(name).split
    split("warm up")
    for text in TEXTS:
        for end in ("", "a"):
            assert "".join(split(text * 300 + end)) == text * 300 + end
            grows_linearly(lambda n: split(text * n + end), 500)  # noqa: B023, called at once


def test_digits_in_groups_of_three() -> None:
    for name, text, words in (
        ("afmoe", "a1234567 12", ["1", "234", "567"]), ("afmoe", "12345", ["12", "345"]),
        ("tiny_aya", "1234567.", ["1", "234", "567"]), ("superbpe", "x1234567y", ["1", "234", "567"]),
    ):  # fmt: skip
        found = pretokenizer(name).split(text)
        at = found.index(words[0])
        assert found[at : at + len(words)] == words, (name, found)


@pytest.mark.parametrize("name", ["qwen2", "llama-bpe", "llama-spm", "bert-bge"])
def test_tokenizers(name: str) -> None:
    data = (GOLDEN / f"ggml-vocab-{name}.gguf").read_bytes()
    tokenizer = load_tokenizer(parse(data, len(data)).metadata)
    special = tokenizer.vocab.texts[tokenizer.vocab.special_ids[0]]
    for text in (*TEXTS, special, special[:-1], "<|im_start|>", "</s>"):
        grows_linearly(lambda n: tokenizer.encode(text * n, parse_special=True), 400)  # noqa: B023, called at once


def many_special(count: int) -> Tokenizer:
    texts = ["a", "b", *(f"<|special_token_{i}|>" for i in range(count)), *("\n" * i for i in range(1, 32))]
    types = [NORMAL] * 2 + [CONTROL] * count + [USER_DEFINED] * 31
    metadata = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": [],
    }  # fmt: skip
    return load_tokenizer(metadata)


def test_many_user_defined_tokens_and_a_long_template() -> None:
    """Each was looked for in all of the template: 250,000 took 19 s."""
    texts = ["<unk>", "a", "<|", "<|im|>", "|i", *(f"q{i:x}" for i in range(100_000))]
    tokenizer = of_unigram(texts, [2, 1] + [USER_DEFINED] * (len(texts) - 2))
    template = "x" * 100_000 + "<|im|>"
    assert seconds(lambda: tokenizer.broken("a", template)) < 1
    assert tokenizer.broken("q1f |i <|im|>", template) == "q1f |\ufdd0i <\ufdd0|\ufdd0im|>"


def test_50_000_control_tokens() -> None:
    tokenizer = many_special(50_000)
    text = "".join(f"a<|special_token_{i}|>b" for i in range(0, 50_000, 5))
    assert seconds(lambda: tokenizer.encode(text, parse_special=True)) < 20  # token by token: minutes
    ids = tokenizer.encode(text, parse_special=True)
    assert ids[1::3] == list(range(2, 50_002, 5))
    runs = tokenizer.encode("\n" * 100 + "a" + "\n" * 5, parse_special=True)  # the longest first
    assert [len(tokenizer.text_of(i)) for i in runs] == [31, 31, 31, 7, 1, 5]
    grows_linearly(lambda n: tokenizer.encode("\n" * n, parse_special=True), 5000)
    grows_linearly(lambda n: tokenizer.encode("<|special_token_" * n, parse_special=True), 1000)


def test_a_long_word_of_wordpiece() -> None:
    vocab = Vocab({"tokenizer.ggml.tokens": ["[UNK]", "▁a", "a", "aa"]}, {"unknown": 0})
    model = WPM(vocab, {})
    grows_linearly(lambda n: model.encode("a" * n), 20_000)
    assert model.encode("a" * 7) == [1, 3, 3, 3]


def vocabulary(kind: str, texts: list[str]) -> Tokenizer:
    """A tokenizer with these tokens, and those of all bytes. "control": control tokens of a byte-pair encoding."""
    metadata = {
        "tokenizer.ggml.model": "gpt2" if kind == "control" else kind,
        "tokenizer.ggml.tokens": [*texts, *(f"<0x{byte:02X}>" for byte in range(256))],
        "tokenizer.ggml.token_type": [CONTROL if kind == "control" else NORMAL] * len(texts) + [BYTE] * 256,
        "tokenizer.ggml.scores": [-1.01 * len(text) for text in texts] + [0.0] * 256, "tokenizer.ggml.merges": [],
    }  # fmt: skip
    return load_tokenizer(metadata)


@pytest.mark.parametrize(("kind", "most"), [("t5", ugm.MAX_NESTED), ("plamo2", MAX_NESTED), ("control", MAX_NESTED)])
def test_tokens_that_are_prefixes_of_each_other_have_a_limit(kind: str, most: int) -> None:
    vocabulary(kind, ["b" * length for length in range(1, most + 1)])
    vocabulary(kind, ["ab" + "b" * length + "c" for length in range(1000)])
    with pytest.raises(WispError, match="prefixes of each other"):
        vocabulary(kind, ["b" * length for length in range(1, most + 2)])


@pytest.mark.parametrize("kind", ["bert", "t5", "rwkv", "plamo2", "control"])
@pytest.mark.parametrize("fit", [False, True])
def test_many_lengths_of_tokens(kind: str, fit: bool) -> None:
    """A search that tried each length at each place took 8 s for 100 KB in a browser."""
    lengths = range(1, ugm.MAX_NESTED if fit else 1000)
    tokenizer = vocabulary(kind, ["a", *("a" * length + ("a" if fit else "b") for length in lengths)])
    assert seconds(lambda: tokenizer.encode("a" * 100_000, parse_special=True)) < 2
    assert seconds(lambda: tokenizer.broken("a" * 100_000, "")) < 1


def of_unigram(texts: list[str], types: list[int], **more: object) -> Tokenizer:
    metadata = {
        "tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": texts, "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.scores": [-1.0] * len(texts), "tokenizer.ggml.unknown_token_id": 0,
    }  # fmt: skip
    return load_tokenizer(metadata | {f"tokenizer.ggml.{name}": value for name, value in more.items()})


def test_user_defined_tokens_of_unigram_are_not_each_looked_for() -> None:
    """A regular expression of them took 6 s for 100 KB and 30,000 tokens."""
    texts = ["<unk>", "a", *(f"a{i:x}" for i in range(10, 60_000))]
    tokenizer = of_unigram(texts, [2, 1] + [USER_DEFINED] * (len(texts) - 2))
    assert seconds(lambda: tokenizer.encode("a" * 50_000)) < 1
    assert [tokenizer.text_of(i) for i in tokenizer.encode("ab1zac2a")] == ["ab1", "<unk>", "ac2a"]


def table(units: dict[int, int], texts: bytes) -> list[int]:
    """A table of replacements with these units."""
    count = 1024
    data = struct.pack("<I", 4 * count) + struct.pack(f"<{count}I", *(units.get(i, 0) for i in range(count)))
    return list(data + texts)


ROOT, A = 512, ord("a")
UNITS = {0: ROOT << 10, ROOT ^ A: A | A << 10}  # "a" leads to the root again
VALUED = {0: ROOT << 10, ROOT ^ A: A | 1 << 8 | 256 << 10, ROOT ^ A ^ 256: 1 << 31}  # "a" becomes the first text


def test_a_table_of_replacements_that_has_no_end() -> None:
    tokenizer = of_unigram(["<unk>", "a", "b"], [2, 1, 1], precompiled_charsmap=table(UNITS, b"x\0"))
    grows_linearly(lambda n: tokenizer.encode("a" * n), 1000)
    assert len(tokenizer.encode("aaa")) == 3


def test_a_table_makes_no_text_much_longer() -> None:
    tokenizer = of_unigram(["<unk>", "a", "b"], [2, 1, 1], precompiled_charsmap=table(VALUED, b"b" * 200 + b"\0"))
    assert len(tokenizer.encode("a")) == 200
    assert len(tokenizer.encode("a" * 100_000)) < 400_000
    endless = of_unigram(["<unk>", "a", "b"], [2, 1, 1], precompiled_charsmap=table(VALUED, b"b" * 1_000_000))
    assert [endless.text_of(i) for i in endless.encode("aa")] == ["a", "a"]


def of_bytes(kind: str, *more: str) -> Tokenizer:
    texts = [*(chr(code) for code in range(33, 127)), *more]
    return load_tokenizer({
        "tokenizer.ggml.model": kind, "tokenizer.ggml.tokens": texts, "tokenizer.ggml.merges": [],
        "tokenizer.ggml.token_type": [NORMAL] * len(texts),
    })  # fmt: skip


def test_many_sequences_of_dna() -> None:
    """Each read the rest of the text: 20,000 took 7 s."""
    tokenizer = of_bytes("hybriddna", "<dna>", "</dna>", "<oov>", "ACGTAA\ue000")
    grows_linearly(lambda n: tokenizer.encode("<dna></dna>" * n), 2000)
    ids = tokenizer.encode("A<dna>acgt</dna>C</dna><dna>acgtx\n")
    assert [tokenizer.text_of(i) for i in ids] == [
        "A", "<dna>", "ACGTAA\ue000", "</dna>", "C", *"</dna>", "<dna>", "<oov>",
    ]  # fmt: skip


def test_the_text_of_a_long_token_that_is_not_of_bytes() -> None:
    """Written for each of its characters, one of 1,024 has 3 MB."""
    tokenizer = of_bytes("gpt2", "中" * 1024, "中")
    assert tokenizer.piece(94) == "中".encode() * 1024
    assert tokenizer.piece(95) == "[UNK_BYTE_0xe4b8ad中]".encode()


def test_tokens_and_sequence_breakers_have_a_limit() -> None:
    with pytest.raises(WispError, match="1024 characters"):
        Vocab({"tokenizer.ggml.tokens": ["a", "b" * 1025]}, {})
    for breakers in (["x"] * 33, ["x" * 41]):
        with pytest.raises(WispError) as caught:
            sampling({"dry_multiplier": 1, "dry_sequence_breakers": breakers}, -1)
        assert caught.value.param == "dry_sequence_breakers"
    assert sampling({"dry_multiplier": 1, "dry_sequence_breakers": ["x", "", "x"]}, -1)[1].dry_breakers == ("x",)
