"""SentencePiece BPE by scores (tokenizer.ggml.model "llama"), with ▁ for spaces and byte fallback."""

import re
from typing import Any

from py_engine.errors import WispError
from py_engine.text.tokenizers.merge import merge
from py_engine.text.tokenizers.vocab import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED, Vocab, byte_of, numbers
from py_engine.text.tokenizers.word_cache import WordCache


class SPM:
    """Repeated merging of neighbours into the token with the best score. Parts that are no token become bytes."""

    def __init__(self, vocab: Vocab, metadata: dict[str, Any], add_space_prefix: bool) -> None:
        scores = numbers(metadata, "scores", len(vocab))
        if not scores:
            raise WispError("The GGUF file has a SentencePiece vocabulary without scores.", "missing_metadata")
        self.vocab = vocab
        self.add_space_prefix = add_space_prefix
        self.priority: dict[str, float] = {t: -scores[i] for t, i in vocab.ids.items()}
        # If no token has a ▁ after another character, words never merge across a ▁: each is encoded, and cached, alone.
        separable = not any("▁" in t.lstrip("▁") for t, i in vocab.ids.items() if vocab.types[i] == NORMAL)
        self.words = re.compile("▁*[^▁]+|▁+" if separable else "(?s:.+)")
        self.cache = WordCache(self._encode_word)
        self.bytes = [self._byte(b) for b in range(256)]

    def _byte(self, value: int) -> int | None:
        ids = self.vocab.ids
        return ids.get(f"<0x{value:02X}>", ids.get(chr(value)) if value < 128 else None)

    def encode(self, text: str, first: bool = False) -> list[int]:
        """Encode a text without special tokens. `first`: it starts the input or follows a special token."""
        if self.add_space_prefix and first:
            text = " " + text
        return self.cache.encode(self.words.findall(text.replace(" ", "▁")))

    def _encode_word(self, word: str) -> list[int]:
        ids = self.vocab.ids
        unknown = self.vocab.special("unknown")
        out: list[int] = []
        for part in merge(list(word), self.priority, ""):
            if part in ids:
                out.append(ids[part])
                continue
            for value in part.encode():
                token = self.bytes[value]
                if token is None:
                    token = unknown
                if token is not None:
                    out.append(token)
        return out

    def piece(self, token: int) -> bytes:
        """The bytes of a token. Special tokens give their text."""
        return spaced_piece(self.vocab, token)


def spaced_piece(vocab: Vocab, token: int) -> bytes:
    """The bytes of a token in a vocabulary that writes spaces as ▁."""
    text, kind = vocab.texts[token], vocab.types[token]
    if kind in (CONTROL, USER_DEFINED, UNKNOWN):
        return text.encode("utf-8", "replace")
    if kind == NORMAL:
        return text.replace("▁", " ").encode("utf-8", "replace")
    if kind == BYTE:
        return byte_of(text)
    return b""
