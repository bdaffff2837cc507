"""Random vocabularies of every kind of tokenizer, some with damaged metadata, and texts made of their tokens."""

from random import Random
from typing import Any

from app.models.loading import vocabulary
from py_engine.errors import CODES, WispError
from py_engine.files.gguf_header import Header
from py_engine.text.pretokenize import _NAMES

KINDS = ("gpt2", "gpt2", "llama", "bert", "t5", "rwkv", "gemma4", "none", 5)
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
    tokens += [f"<0x{byte:02X}>" for byte in range(256)] if rng.random() < 0.3 else []
    metadata: dict[str, Any] = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": rng.choice(KINDS),
        "tokenizer.ggml.pre": rng.choice(sorted(_NAMES)),
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [rng.choice((1, 1, 1, 1, 2, 3, 4, 5, 6)) for _ in tokens],
        "tokenizer.ggml.scores": [rng.uniform(-9, 0) for _ in tokens],
        "tokenizer.ggml.merges": [f"{rng.choice(ALPHABET)} {rng.choice(ALPHABET)}" for _ in range(40)],
        "tokenizer.ggml.precompiled_charsmap": [rng.randrange(256) for _ in range(rng.choice((0, 3, 40, 400)))],
    }
    for name in rng.sample(FIELDS, rng.choice((0, 0, 1, 2))):
        metadata[f"tokenizer.ggml.{name}"] = rng.choice(DAMAGE)
    text = "".join(rng.choices((*ALPHABET, *tokens[:20], "\ud800", "<|im_end|>"), k=rng.choice((0, 1, 50, 2000))))
    if rng.random() < 0.1:
        text = rng.choice(ALPHABET) * 20_000
    return metadata, text


def run(given: tuple[dict[str, Any], str]) -> None:
    """Make the tokenizer, encode and decode."""
    metadata, text = given
    try:
        tokenizer = vocabulary("x", Header(3, metadata, {}, 32, 0, None), {}).tokenizer
        for special in (False, True):
            tokenizer.decode(tokenizer.encode(text, special, special))
        broken = tokenizer.encode_prompt(tokenizer.broken(text, "<|im_end|>"))
    except WispError as error:
        if error.code not in CODES:
            raise AssertionError(error.code) from error
        return
    marks = {
        i for i, token in enumerate(tokenizer.vocab.texts) if token.startswith("<|") and tokenizer.vocab.types[i] == 3
    }
    assert not marks & set(broken) - {tokenizer.bos_id, tokenizer.vocab.special("unknown")}
