"""Random vocabularies of every kind of tokenizer, some with damaged metadata, and texts made of their tokens."""

import math
import struct
from random import Random
from typing import Any

from app.models.loading import vocabulary
from py_engine.errors import CODES, WispError
from py_engine.files.gguf_header import Header
from py_engine.text.pretokenize import _NAMES

KINDS = (
    *("gpt2", "gpt2", "llama", "bert", "t5", "t5", "rwkv", "gemma4", "plamo2", "plamo3", "whitespace", "hybriddna"),
    *("none", 5),
)
ALPHABET = (
    "a",
    "b",
    "aa",
    "▁",
    "▁a",
    "Ġ",
    "Ċ",
    "<",
    "|",
    ">",
    "7",
    "77",
    "é",
    "中",
    "\n",
    " ",
    "\\x41",
    "\\n",
    "\u0301",
    "\U0001d4b3",
    "##a",
    "<dna>",
    "</dna>",
    "<oov>",
    "\ue000",
)
DAMAGE: tuple[Any, ...] = (
    None,
    0,
    -1,
    2**31,
    1.5,
    "x",
    True,
    [],
    [0],
    ["a"],
    [None],
    [-1] * 50,
    [1.5] * 50,
    ["a b"] * 50,
)
SCORES = (0.0, -0.0, math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45)
TYPES = (-(2**31), -1, 0, 7, 255, 2**31 - 1)
IDS = (-(2**31), -1, 0, 1, 2**31 - 1, 2**32 - 1)  # of special tokens, besides the first id that no token has
KINDS_OF_IDS = ("bos", "eos", "eot", "eom", "unknown", "padding", "mask", "cls", "seperator", "fim_pre", "fim_pad")
LONG = ("a", " ", "\n", "▁", "中", "\u0301", "\U0001d4b3", "\ud800", "<", "7", "\0", "a\u0301", "ab", "'", "\u200d👩")
LENGTH = 100_000  # bytes of a long text
FIELDS = (
    "tokens",
    "token_type",
    "scores",
    "merges",
    "pre",
    "model",
    "bos_token_id",
    "eos_token_id",
    "unknown_token_id",
    "add_bos_token",
    "add_space_prefix",
    "precompiled_charsmap",
    "remove_extra_whitespaces",
    "padding_token_id",
)


def case(rng: Random) -> tuple[dict[str, Any], str]:
    """(metadata, a text)."""
    size = rng.choice((1, 5, 60, 60, 300))
    tokens = ["".join(rng.choices(ALPHABET, k=rng.randrange(1, 4))) for _ in range(size)]
    tokens += [f"<|{name}|>" for name in rng.sample(("im_end", "im_start", "a", "end"), rng.randrange(4))]
    kind = rng.choice(KINDS)
    has_bytes = kind in ("plamo2", "plamo3")
    tokens += [f"<0x{byte:02X}>" for byte in range(256)] if has_bytes or rng.random() < 0.3 else []
    types = (1, 1, 1, 1, 2, 3, 4, 5, 6)
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": kind,
        "tokenizer.ggml.pre": rng.choice(sorted(_NAMES)),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [
            6 if has_bytes and token.startswith("<0x") else rng.choice(types) for token in tokens
        ],
        "tokenizer.ggml.scores": [rng.uniform(-9, 0) for _ in tokens],
        "tokenizer.ggml.merges": [f"{rng.choice(ALPHABET)} {rng.choice(ALPHABET)}" for _ in range(40)],
        "tokenizer.ggml.precompiled_charsmap": [rng.randrange(256) for _ in range(rng.choice((0, 3, 40, 400)))]
        if rng.random() < 0.5
        else _table(rng),
    }
    for _ in range(rng.choice((0, 0, 1, 3))):
        _damage(rng, metadata)
    tokens = metadata["tokenizer.ggml.tokens"]
    for name in rng.sample(FIELDS, rng.choice((0, 0, 1, 2))):
        metadata[f"tokenizer.ggml.{name}"] = rng.choice(DAMAGE)
    text = "".join(rng.choices((*ALPHABET, *tokens[:20], "\ud800", "<|im_end|>"), k=rng.choice((0, 1, 50, 2000))))
    if rng.random() < 0.1:
        piece = rng.choice((*LONG, *ALPHABET, *tokens[:9]))
        text = (piece or "a") * (LENGTH // max(1, len(piece.encode("utf-8", "replace"))))
    elif rng.random() < 0.03:  # no blanks
        text = "".join(rng.choices(("a", "b", "é", "<", "\u0301"), k=LENGTH // 2))
    return metadata, text


def _table(rng: Random) -> list[int]:
    """A table of replacements whose places lead to others, or to themselves, for the bytes of some texts."""
    units = [0] * 1024
    root = node = rng.randrange(256, 768)
    units[0] = root << 10
    texts = b"\0".join((b"b" * rng.choice((0, 1, 33, 5000)), b"", b"a")) + rng.choice((b"\0", b""))
    for byte in rng.choices("".join(ALPHABET[:14]).encode(), k=rng.choice((1, 2, 9, 60))):
        at = node ^ byte
        value, away = rng.randrange(2), rng.choice((byte, rng.randrange(256), rng.randrange(1024)))
        units[at] = byte | value << 8 | away << 10
        node = at ^ away
        if value and node < len(units):
            units[node] = 1 << 31 | rng.randrange(len(texts) + 2)
        if node >= len(units) or rng.random() < 0.2:
            node = root
    return list(struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + texts)


def _damage(rng: Random, metadata: dict[str, Any]) -> None:
    """Damage a vocabulary in a way that its types do not show."""
    tokens, scores, types, merges = (
        metadata[f"tokenizer.ggml.{name}"] for name in ("tokens", "scores", "token_type", "merges")
    )
    at, damage = rng.randrange(len(tokens)), rng.randrange(12)
    if damage == 0:
        merges += [f"{a} {b}" for a, b in (("zz", "q"), ("", ""), ("a", "a"), ("aa", "a"), ("a ", " b"), ("a", ""))]
        merges.append(rng.choice(("", " ", "a", "a b c", "  ", "x" * 5000, merges[0])))
    elif damage == 1:
        merges[:] = [f"{'a' * n} {'a' * n}" for n in range(1, 40)]
        tokens += ["a" * n for n in range(1, 80)]
    elif damage == 2:  # doubled tokens
        tokens += rng.choices(tokens, k=rng.choice((1, 50)))
    elif damage == 3:
        tokens[at] = ""
    elif damage == 4:
        scores[:] = [rng.choice(SCORES) if rng.random() < 0.5 else score for score in scores]
    elif damage == 5:
        types[:] = [rng.choice(TYPES) if rng.random() < 0.3 else kind for kind in types]
    elif damage == 6:
        for kind in rng.sample(KINDS_OF_IDS, 3):
            metadata[f"tokenizer.ggml.{kind}_token_id"] = rng.choice((*IDS, len(tokens), len(tokens) - 1))
    elif damage == 7:
        del tokens[1:], scores[1:], types[1:]
    elif damage == 8:  # added tokens that begin each other
        added = ["<|" + "a" * n for n in range(rng.choice((3, 90)))] + ["<", "<|", "|>", "a", "<|a|><|a|>"]
        tokens += added
        types += [rng.choice((3, 4))] * (len(tokens) - len(types))
    elif damage == 9:
        tokens[at] = rng.choice(("a", "<", " ", "\u0301", "▁", "ab")) * rng.choice((100, 500, 1024, 1025, 60_000))
    elif damage == 10:  # runs of many lengths
        count, longest = rng.choice((16, 50, 64, 128, 129)), rng.choice((130, 130, 1024))
        run = rng.choice(("a", "▁", "a", "中"))
        tokens += [run * n + rng.choice(("", "", "b")) for n in range(longest - count, longest)]
    else:
        types[:] = [rng.choice((1, 3, 4, 6))] * len(types)
    if rng.random() < 0.8:
        scores += [-1.0] * (len(tokens) - len(scores))
        types += [1] * (len(tokens) - len(types))


def run(given: tuple[dict[str, Any], str]) -> None:
    """Make the tokenizer, encode and decode."""
    metadata, text = given
    try:
        tokenizer = vocabulary("x", Header(3, metadata, {}, 32, 0, None), {}).tokenizer
        long = len(text) > LENGTH // 4
        for special in (False, True) if not long else (True,):
            tokenizer.decode(tokenizer.encode(text, special, special))
        text = text[: LENGTH // 4]  # each must end in time, not all of them together
        broken = tokenizer.encode_prompt(tokenizer.broken(text, "<|im_end|>"))
    except WispError as error:
        if error.code not in CODES:
            raise AssertionError(error.code) from error
        return
    marks = {
        i for i, token in enumerate(tokenizer.vocab.texts) if token.startswith("<|") and tokenizer.vocab.types[i] == 3
    }
    assert not marks & set(broken) - {tokenizer.bos_id, tokenizer.vocab.special("unknown")}
