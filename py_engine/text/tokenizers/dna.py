"""BPE with tokens of six bases for DNA sequences (tokenizer.ggml.model "hybriddna")."""

import re

from py_engine.text.tokenizers.bpe import BPE

OPEN, CLOSE, UNKNOWN = "<dna>", "</dna>", "<oov>"
SEQUENCE = re.compile(f"{OPEN}(.*?)({CLOSE}|\\Z)", re.DOTALL)
SIZE = 6  # bases of a token; the last one is padded with A
MARK = "\ue000"  # at the end of tokens of DNA, so that they differ from words of the same letters
UPPER = {ord("a") + i: ord("A") + i for i in range(26)}


class HybridDNA(BPE):
    """BPE outside <dna> and </dna>; six bases a token inside."""

    def encode(self, text: str, first: bool = False) -> list[int]:
        """Encode a text without special tokens."""
        ids, out = self.vocab.ids, list[int]()
        if not {OPEN, CLOSE, UNKNOWN} <= ids.keys():
            return super().encode(text)
        at = 0
        for found in SEQUENCE.finditer(text):
            sequence, closed = found.groups()
            out += super().encode(text[at : found.start()])
            out += [ids[OPEN], *self._bases(sequence), *([ids[CLOSE]] if closed else [])]
            at = found.end()
        out += super().encode(text[at:])
        return out

    def _bases(self, sequence: str) -> list[int]:
        """The tokens of a sequence. Groups with letters other than A, C, G and T become the unknown token."""
        ids, data = self.vocab.ids, sequence.translate(UPPER).encode()
        groups = [data[at : at + SIZE].ljust(SIZE, b"A") for at in range(0, len(data), SIZE)]
        return [ids.get(group.decode("utf-8", "replace") + MARK, ids[UNKNOWN]) for group in groups]

    def piece(self, token: int) -> bytes:
        """The bytes of a token. Special tokens give their text."""
        text = self.vocab.texts[token]
        if re.fullmatch(f".+{MARK}", text) and token > self.vocab.ids.get(UNKNOWN, len(self.vocab)):
            return text.removesuffix(MARK).encode()
        return super().piece(token)
