"""BPE of the words between whitespace, which is dropped (tokenizer.ggml.model "whitespace"): Jina's Chinese encoder."""

from typing import Any

from py_engine.text.pretokenize import Pretokenizer
from py_engine.text.tokenizers.bpe import BPE
from py_engine.text.tokenizers.vocab import Vocab
from py_engine.text.tokenizers.wpm import SPACES, lower


class WhitespaceBPE(BPE):
    """BPE of each word, in lower case if the metadata says so."""

    def __init__(self, vocab: Vocab, metadata: dict[str, Any], pre: Pretokenizer) -> None:
        super().__init__(vocab, metadata, pre)
        self.lowercase = bool(metadata.get("tokenizer.ggml.normalizer.lowercase", pre.name != "whitespace"))

    def encode(self, text: str, first: bool = False) -> list[int]:
        """Encode a text without special tokens."""
        if self.lowercase:
            text = "".join(map(lower, text))
        words = "".join(" " if c in SPACES else c for c in text).split(" ")
        return [token for word in words for token in super(WhitespaceBPE, self).encode(word)]
