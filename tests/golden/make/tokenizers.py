"""vocab/*.json: what llama.cpp encodes and decodes with a vocabulary.

encode: {"text" or "bytes_hex", "add_special", "parse_special", "ids"}. `bytes_hex` is not valid UTF-8; llama.cpp reads
    each bad byte as U+FFFD.
decode: {"ids", "pieces_hex", "text", "stream"}. `pieces_hex`: each token's bytes, special tokens included. `text`:
    llama_detokenize(remove_special=False, unparse_special=True), bad UTF-8 replaced. `stream`: what may be shown after
    each token, an incremental UTF-8 decoder's output; incomplete tails wait, the last entry flushes them.
"""

import codecs
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.golden.make.llama_cpp import Vocabulary
from tests.golden.make.llama_cpp_api import Library
from tests.golden.make.tokenizer_texts import BAD_UTF8, TEXTS

SEED = 1
RANDOM_TEXTS = 80
RANGES = [
    *[(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F), (0x1100, 0x11FF)],
    *[(0x2000, 0x206F), (0x2190, 0x22FF), (0x3040, 0x30FF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0x1F300, 0x1F64F)],
]
NOISE = " \n\t'0123456789abcXYZ.,!?-_/\\(){}[]<>|\"éß你😀"
FRAGMENTS = [" ", "  ", "\n", "\r\n", "\t", "a", "B", "'s", "'LL", "12", "345", "!", "...", "ñ", "日本"]
CUT = ("😀👨‍👩‍👧‍👦", "日本語", "naïve Ā", "𝔘𝔫𝔦")  # noqa: RUF001  # decoded in part, so that characters are cut

Case = dict[str, Any]


def random_text(rng: random.Random, vocabulary: Vocabulary) -> str:
    """Characters of some script, pieces of the vocabulary, or ASCII noise."""
    kind = rng.randrange(4)
    if kind == 0:
        return "".join(chr(rng.randint(*rng.choice(RANGES))) for _ in range(rng.randint(1, 40)))
    if kind == 1:
        count = range(rng.randint(2, 12))
        pieces = [vocabulary.piece(rng.randrange(vocabulary.n_vocab), special=False) for _ in count]
        return b"".join(pieces).decode(errors="ignore")
    alphabet, most = (NOISE, 60) if kind == 2 else (FRAGMENTS, 30)
    return "".join(rng.choice(alphabet) for _ in range(rng.randint(1, most)))


def special_texts(special: dict[str, int], rng: random.Random) -> list[str]:
    """Special tokens alone, inside words, next to each other, broken."""
    names = sorted(
        (name for name in special if 2 < len(name) < 40),
        key=lambda name: (not name.startswith(("<|", "[", "<")), special[name]),
    )
    out = []
    for token in dict.fromkeys(names[:6] + rng.sample(names, min(6, len(names)))):
        other = rng.choice(names)
        out += [token, f"hello{token}world", f"hello {token} world", f"{token}{other}", f" {token}\n"]
        out += [f"{token[:-1]} {token[1:]}", f"{token}user\nhi there{other}\n"]
    return out


def encode_cases(
    vocabulary: Vocabulary, special: dict[str, int], rng: random.Random, texts: Sequence[str]
) -> list[Case]:
    cases: list[Case] = []
    seen = set()

    def add(text: str | bytes, add_special: bool, parse_special: bool) -> None:
        if (text, add_special, parse_special) in seen:
            return
        seen.add((text, add_special, parse_special))
        ids = vocabulary.encode(text, add_special=add_special, parse_special=parse_special)
        key = {"text": text} if isinstance(text, str) else {"bytes_hex": text.hex()}
        cases.append({**key, "add_special": add_special, "parse_special": parse_special, "ids": ids})

    for text in TEXTS:
        add(text, False, False)
    for text in TEXTS[:12]:
        add(text, True, True)
    for text in special_texts(special, rng) if special else []:
        add(text, False, True)
        add(text, True, False)
    for _ in range(RANDOM_TEXTS):
        add(random_text(rng, vocabulary), False, False)
    add("".join(TEXTS), False, False)
    for text in texts:
        add(text, False, False)
        add(text, True, True)
    for text in BAD_UTF8:
        add(bytes.fromhex(text), False, False)
    return cases


def decode_cases(vocabulary: Vocabulary, encoded: list[Case], rng: random.Random) -> list[Case]:
    pool = [case["ids"] for case in encoded if 0 < len(case["ids"]) < 60]
    lists = rng.sample(pool, min(40, len(pool)))
    lists += [vocabulary.encode(text, add_special=True, parse_special=True) for text in TEXTS[3:24:2]]
    for text in CUT:
        ids = vocabulary.encode(text)
        lists += [ids[:k] for k in range(1, len(ids))]
    lists += [[rng.randrange(vocabulary.n_vocab) for _ in range(rng.randint(1, 20))] for _ in range(20)]
    cases = []
    for ids in lists:
        pieces = [vocabulary.piece(i) for i in ids]
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        stream = [decoder.decode(piece) for piece in pieces] + [decoder.decode(b"", True)]
        text = vocabulary.decode(ids).decode(errors="replace")
        cases.append({"ids": ids, "pieces_hex": [piece.hex() for piece in pieces], "text": text, "stream": stream})
    return cases


def make(vocab: Path, out: Path, library: Library, texts: Sequence[str] = ()) -> None:
    """Write the golden of a vocabulary's GGUF. `texts`: encoded besides those of every vocabulary."""
    if vocab.with_name(vocab.name + ".inp").exists():
        check_llama_cpp_s_own(vocab, library)
    vocabulary = Vocabulary(library, vocab)
    rng = random.Random(SEED)
    special = vocabulary.special()
    encode = encode_cases(vocabulary, special, rng, texts)
    decode = decode_cases(vocabulary, encode, rng)
    first = dict(sorted(special.items(), key=lambda item: item[1])[:300])
    bos, eos = vocabulary.adds
    head = {"vocab": vocab.name, "n_tokens": vocabulary.n_vocab, "add_bos": bos, "add_eos": eos, "special": first}
    parts = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for name, cases in (("encode", encode), ("decode", decode)):
        parts.append(f'"{name}": [\n' + ",\n".join(json.dumps(case) for case in cases) + "\n]")
    out.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


def check_llama_cpp_s_own(vocab: Path, library: Library) -> None:
    """Compare with llama.cpp's .inp and .out beside the vocabulary: the library must tokenize as its makers say."""
    vocabulary = Vocabulary(library, vocab)
    texts = vocab.with_name(vocab.name + ".inp").read_bytes().split(b"\n__ggml_vocab_test__\n")
    lines = vocab.with_name(vocab.name + ".out").read_text().split("\n")
    for text, line in zip(texts, lines, strict=False):
        assert vocabulary.encode(text) == [int(i) for i in line.split()], text
