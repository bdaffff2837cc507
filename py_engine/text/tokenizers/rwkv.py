"""RWKV World (tokenizer.ggml.model "rwkv"): greedy longest match over bytes.

Token texts are escaped: \\t \\n \\r \\xNN, and a backslash before any other character stands for that character.
"""

import re

from py_engine.text.tokenizers.vocab import Vocab, check_lengths

_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_NAMED = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


class RWKV:
    """Greedy longest match, with a table of token lengths by their first two bytes."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        self.ids: dict[bytes, int] = {}
        lengths: dict[bytes, set[int]] = {}
        for i, text in enumerate(vocab.texts):
            data = self.piece(i) if text else b""
            if data:
                self.ids.setdefault(data, i)
                lengths.setdefault(data[:2], set()).add(len(data))
        check_lengths(lengths.values())
        self.lengths = {head: sorted(ns, reverse=True) for head, ns in lengths.items()}

    def encode(self, text: str, first: bool = False) -> list[int]:
        """Encode a text without special tokens."""
        data = text.encode()
        ids, lengths, unknown = self.ids, self.lengths, self.vocab.special("unknown")
        out: list[int] = []
        at = 0
        while at < len(data):
            for length in (*lengths.get(data[at : at + 2], ()), 1):
                token = ids.get(data[at : at + length])
                if token is not None:
                    at += length
                    break
            else:
                token = unknown
                at += 1
            if token is not None:
                out.append(token)
        return out

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""
        return _ESCAPE.sub(_unescape, self.vocab.texts[token].encode("utf-8", "replace"))


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    if len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    return _NAMED.get(escape, escape)
