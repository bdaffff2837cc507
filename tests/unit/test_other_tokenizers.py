"""Unigram and RWKV tokenizers against their definitions: a search over all splits, the longest match."""

import itertools
import math
import random
import struct
from typing import Any

import pytest

from py_engine.text.tokenizer import Tokenizer, load_tokenizer
from py_engine.text.tokenizers.ugm import CharsMap


def ugm(words: dict[str, float], **more: Any) -> Tokenizer:
    texts = ["<pad>", "</s>", "<unk>", *words]
    metadata = {
        "tokenizer.ggml.model": "t5",
        "tokenizer.ggml.tokens": texts,
        "tokenizer.ggml.scores": [0.0, 0.0, 0.0, *words.values()],
        "tokenizer.ggml.token_type": [3, 3, 2, *[1] * len(words)],
    }
    return load_tokenizer(metadata | {f"tokenizer.ggml.{k}": v for k, v in more.items()})


def best_by_search(words: dict[str, float], text: str) -> float:
    """The greatest sum of scores over all splits of the text. An unknown character scores the least score - 10."""
    unknown = min(words.values()) - 10
    best = -math.inf
    for cuts in itertools.product((0, 1), repeat=len(text) - 1):
        parts, last = [], 0
        for i, cut in enumerate([*cuts, 1], 1):
            if cut:
                parts.append(text[last:i])
                last = i
        if all(p in words or len(p) == 1 for p in parts):
            best = max(best, sum(words.get(p, unknown) for p in parts))
    return best


def test_unigram_finds_the_best_split() -> None:
    rng = random.Random(2)
    for _ in range(60):
        words = {"".join(rng.choice("▁abc") for _ in range(rng.randint(1, 4))): -rng.random() * 9 for _ in range(12)}
        t = ugm(words)
        for _ in range(20):
            text = "".join(rng.choice(" abcd") for _ in range(rng.randint(1, 9)))
            ids = t.encode(text)
            score = sum(words[t.vocab.texts[i]] for i in ids if i != 2)
            unknown = len(text) - sum(len(t.vocab.texts[i]) for i in ids if i != 2)
            score += unknown * (min(words.values()) - 10)
            assert math.isclose(score, best_by_search(words, text.replace(" ", "▁")), abs_tol=1e-9), text
            assert not any(a == b == 2 for a, b in itertools.pairwise(ids))


def test_unigram_spaces_and_flags() -> None:
    words = {"▁": -3.0, "▁a": -1.0, "a": -2.0, "b": -2.0}
    t = ugm(words, add_space_prefix=True, remove_extra_whitespaces=True)
    assert [t.vocab.texts[i] for i in t.encode("  a   b ", add_special=True)] == ["▁a", "▁", "b", "</s>"]
    assert t.decode(t.encode("a a")) == "a a"
    t = ugm(words)
    assert [t.vocab.texts[i] for i in t.encode("a  a")] == ["a", "▁", "▁a"]


def charsmap(rules: dict[str, str]) -> bytes:
    """A double array for the rules, filled by trying offsets until the children of a node fit."""
    texts, offsets = b"", {}
    trie: dict[int, Any] = {}
    for source, target in rules.items():
        offsets[source] = len(texts)
        texts += target.encode() + b"\0"
        node = trie
        for byte in source.encode():
            node = node.setdefault(byte, {})
        node[0] = offsets[source]
    units = [0] * 8192
    used = {0}

    def place(node: dict[int, Any], at: int, label: int) -> None:
        for offset in range(1, 4096):
            slots = {at ^ offset ^ byte for byte in node}
            if not slots & used and max(slots) < len(units):
                break
        else:
            raise AssertionError
        used.update(slots)
        units[at] = offset << 10 | (0 in node) << 8 | label
        for byte, child in node.items():
            slot = at ^ offset ^ byte
            if byte:
                place(child, slot, byte)
            else:
                units[slot] = 1 << 31 | child

    place(trie, 0, 0)
    return struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + texts


def test_unigram_normalises_by_its_table() -> None:
    rules = {"ﬁ": "fi", "é": "e", "\uff21": "A", "\u00a0": " ", "ab": "X", "abc": "Y", "…": "...", "\u200b": ""}
    table = CharsMap(charsmap(rules))
    assert table.replace("ﬁn é \uff21\u00a0日本 ab abc abd… z\u200bz") == "fin e A 日本 X Y Xd... zz"
    assert CharsMap(b"").replace("é") == "é"
    signed = [b - 256 if b > 127 else b for b in charsmap(rules)]
    t = ugm({"▁": -3.0, "Y": -1.0}, precompiled_charsmap=signed)
    assert [t.vocab.texts[i] for i in t.encode("abc")] == ["Y"]


def test_rwkv_takes_the_longest_token() -> None:
    texts = ["<s>", *(f"\\x{b:02x}" for b in range(256)), "ab", "abc", "\\n\\n", "\\xe6\\x97", "日本", "\\\\", "\\'"]
    t = load_tokenizer({"tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": texts})
    data = "abcab\n\n日本日\\x'é"
    pieces = [t.piece(i) for i in t.encode(data)]
    assert b"".join(pieces) == data.encode()
    assert pieces[:5] == [b"abc", b"ab", b"\n\n", "日本".encode(), b"\xe6\x97"]
    assert t.decode(t.encode(data)) == data


@pytest.mark.parametrize("prefixed", [False, True])
def test_decoding_removes_a_space_that_any_tokenizer_is_said_to_add(prefixed: bool) -> None:
    """The metadata's add_space_prefix counts for WordPiece, too, whose words begin with a space."""
    metadata = {
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.tokens": ["[UNK]", "[CLS]", "[SEP]", "▁big", "▁red", "s"],
        "tokenizer.ggml.token_type": [2, 3, 3, 1, 1, 1],
        "tokenizer.ggml.add_space_prefix": prefixed,
    }
    assert load_tokenizer(metadata).decode([3, 4, 5]) == ("big reds" if prefixed else " big reds")
