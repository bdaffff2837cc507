"""Byte-level BPE (tokenizer.ggml.model "gpt2"), and its raw-text form with ▁ for spaces ("gemma4").

In the byte-level form every byte is written as one printable character: as in Latin-1 if that is printable, else as
U+0100 and following, in order. Tokens and merges are strings of these characters.
"""

from typing import Any

from py_engine.errors import WispError
from py_engine.text.pretokenize import Pretokenizer
from py_engine.text.tokenizers.merge import merge
from py_engine.text.tokenizers.vocab import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocab, byte_of
from py_engine.text.tokenizers.word_cache import WordCache


def _byte_characters() -> list[str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = iter(range(0x100, 0x200))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


_CHARACTERS = _byte_characters()
_TO_CHARACTERS = dict(enumerate(_CHARACTERS))  # a str.translate table for Latin-1 text
_TO_BYTE = {c: b for b, c in enumerate(_CHARACTERS)}
LONGEST_WRITTEN = 64  # characters of a token that are each written with the whole token


class BPE:
    """BPE: split text into words and merge the characters of each word by rank."""

    def __init__(self, vocab: Vocab, metadata: dict[str, Any], pre: Pretokenizer) -> None:
        merges = metadata.get("tokenizer.ggml.merges")
        if not isinstance(merges, list):
            if pre.name != "kimi-k2":
                raise WispError("The GGUF file has a BPE vocabulary without merges.", "missing_metadata")
            merges = []
        if not all(isinstance(pair, str) for pair in merges):
            raise WispError("tokenizer.ggml.merges must be a list of texts.", "corrupt_header")
        self.vocab = vocab
        self.pre = pre
        self.ranks: dict[str, float] = dict(zip(reversed(merges), range(len(merges) - 1, -1, -1), strict=True))
        self.cache = WordCache(self._encode_word)

    def encode(self, text: str, first: bool = False) -> list[int]:
        """Encode a text without special tokens."""
        return self.cache.encode(self.pre.split(text.replace(" ", "▁") if self.pre.escape_spaces else text))

    def _encode_word(self, word: str) -> list[int]:
        ids = self.vocab.ids
        if self.pre.byte_level:
            word = word.encode().decode("latin-1").translate(_TO_CHARACTERS)
        if (self.pre.ignore_merges or (self.pre.gemma4 and not word.strip("\n"))) and word in ids:
            return [ids[word]]
        out: list[int] = []
        for part in merge(list(word), self.ranks, " "):
            if part in ids:
                out.append(ids[part])
            elif self.pre.byte_level:
                out += [ids[c] for c in part if c in ids]
            else:
                out += [ids[name] for name in (f"<0x{b:02X}>" for b in part.encode()) if name in ids]
        return out

    def piece(self, token: int) -> bytes:
        """The bytes of a token. Special tokens give their text."""
        text, kind = self.vocab.texts[token], self.vocab.types[token]
        if kind in (CONTROL, USER_DEFINED, UNKNOWN):
            return text.encode("utf-8", "replace")
        if kind == BYTE:
            return byte_of(text)
        if kind != NORMAL:
            return b""
        if self.pre.escape_spaces:
            return text.replace("▁", " ").encode("utf-8", "replace")
        try:
            return bytes([_TO_BYTE[c] for c in text])
        except (
            KeyError
        ):  # not a byte-level token: written as in llama.cpp, unless that grows with the square of its length
            if len(text) > LONGEST_WRITTEN:
                return text.encode("utf-8", "replace")
            return b"".join(
                bytes([_TO_BYTE[c]]) if c in _TO_BYTE else f"[UNK_BYTE_0x{c.encode().hex()}{text}]".encode()
                for c in text
            )
