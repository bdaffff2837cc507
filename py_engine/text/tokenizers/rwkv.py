"""RWKV World (tokenizer.ggml.model "rwkv"): greedy longest match over bytes.

Token texts are escaped: \\t \\n \\r \\xNN, and a backslash before any other character stands for that character.
"""

import re

from py_engine.text.tokenizers.prefix_index import PrefixIndex
from py_engine.text.tokenizers.vocab import Vocab

_ESCAPE = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_NAMED = {b"t": b"\t", b"n": b"\n", b"r": b"\r"}


class RWKV:
    """Greedy longest match."""

    def __init__(self, vocab: Vocab) -> None:
        self.vocab = vocab
        ids: dict[bytes, int] = {}
        for i, text in enumerate(vocab.texts):
            data = self.piece(i) if text else b""
            if data:
                ids.setdefault(data, i)
        self.index = PrefixIndex(ids)
        self.ids = [ids[data] for data in self.index.tokens]

    def encode(self, text: str, first: bool = False) -> list[int]:
        """Encode a text without special tokens."""
        data = text.encode()
        index, unknown = self.index, self.vocab.special("unknown")
        out: list[int] = []
        at = 0
        while at < len(data):
            found = index.longest(data, at)
            if found >= 0:
                out.append(self.ids[found])
                at += len(index.tokens[found])
                continue
            if unknown is not None:
                out.append(unknown)
            at += 1
        return out

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""
        return _ESCAPE.sub(_unescape, self.vocab.texts[token].encode("utf-8", "replace"))


def _unescape(match: re.Match[bytes]) -> bytes:
    escape = match[1]
    if len(escape) == 3:
        return bytes([int(escape[1:], 16)])
    return _NAMED.get(escape, escape)
