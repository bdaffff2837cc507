"""Every pre-tokenizer that llama.cpp knows, against llama.cpp's ids (tests/golden/make/pretokenizers.py)."""

import json

import pytest

from py_engine.text.pretokenize import pretokenizer
from py_engine.text.tokenizer import load_tokenizer
from tests.golden.make.pretokenizers import GOLDEN, KINDS, NAMES, SEED, vocabulary

CASES = {name: group["cases"] for group in json.loads(GOLDEN.read_text("utf-8")) for name in group["names"]}


@pytest.mark.parametrize("name", [*NAMES, *KINDS])
def test_encodes_as_llama_cpp(name: str) -> None:
    tokenizer = load_tokenizer(dict(vocabulary(name, SEED)))
    assert not tokenizer.notices
    for text, ids in CASES[name]:
        assert tokenizer.encode(text) == ids, text


def test_groups_of_digits_include_what_is_before_them() -> None:
    for name in ("afmoe", "tiny_aya"):  # so the last space is a word of its own, as before a letter
        assert pretokenizer(name).split("!  1234") == ["!", " ", " ", "1", "234"], name


def test_words_in_camel_case() -> None:
    assert pretokenizer("kimi-k2").split("camelCase's 漢字x") == ["camelCase's", " ", "漢字", "x"]
    assert pretokenizer("tiny_aya").split("camelCase's") == ["camelCase's"]


def test_sequences_of_dna() -> None:
    tokenizer = load_tokenizer(dict(vocabulary("hybriddna", SEED)))
    ids = tokenizer.encode("a<dna>acgtacGTNAAAC</dna>b<dna>A")
    assert [tokenizer.piece(i).decode() for i in ids] == [
        "a", "<dna>", "ACGTAC", "<oov>", "CAAAAA", "</dna>", "b", "<dna>", "AAAAAA",
    ]  # fmt: skip


def test_whitespace_is_dropped_and_case_is_the_metadatas() -> None:
    metadata = dict(vocabulary("whitespace", SEED))
    for lowercase, text in ((False, "aBİ"), (True, "abi")):
        tokenizer = load_tokenizer(metadata | {"tokenizer.ggml.normalizer.lowercase": lowercase})
        assert tokenizer.encode(" a\u3000B \n İ") == load_tokenizer(metadata).encode(" ".join(text))


@pytest.mark.parametrize("name", ["glm4", "glm5"])
def test_words_that_are_tokens_are_not_merged(name: str) -> None:
    texts = ["YRX"[:2], "YRX", *"YRX"]
    metadata = {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": name, "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.token_type": [1] * len(texts), "tokenizer.ggml.merges": ["Y R"],
    }  # fmt: skip
    assert load_tokenizer(metadata).encode("YRX") == [1]
