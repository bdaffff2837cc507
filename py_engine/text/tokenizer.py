"""Text to token ids and back, as in llama.cpp, from the metadata of a GGUF file."""

import codecs
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from py_engine.errors import WispError
from py_engine.text.pretokenize import pretokenizer
from py_engine.text.tokenizers.special import BREAK, SpecialTokens
from py_engine.text.tokenizers.text_cache import TextCache
from py_engine.text.tokenizers.vocab import CONTROL, UNKNOWN, Vocab


class TokenizerModel(Protocol):
    """What a module of tokenizers/ must define."""

    def encode(self, text: str, first: bool = False) -> list[int]:
        """Encode a text without special tokens. `first`: it starts the input or follows a special token."""

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""


@dataclass(frozen=True)
class Flags:
    """Properties of a tokenizer; the metadata may override add_bos, add_eos and add_space_prefix."""

    add_bos: bool = False
    add_eos: bool = False
    add_space_prefix: bool = False  # decoding removes a space in front
    clean_spaces: bool = False  # decoding removes spaces before punctuation and contractions
    always_wrap: bool = False  # WordPiece: [CLS] ... [SEP], whatever the metadata says


class Tokenizer:
    """A tokenizer: text to ids and back, special tokens included. load_tokenizer() creates it."""

    def __init__(self, vocab: Vocab, model: TokenizerModel, metadata: dict[str, Any], flags: Flags) -> None:
        self.vocab = vocab
        self.model = model
        self._texts = TextCache(model.encode)
        self.notices: list[str] = []
        self.bos_id, self.eos_id = vocab.special("bos"), vocab.special("eos")
        self.eog_ids = vocab.eog_ids  # end of generation
        self.add_bos = self._flag(metadata, "add_bos_token", flags.add_bos) and self.bos_id is not None
        self.add_eos = self._flag(metadata, "add_eos_token", flags.add_eos) and self.eos_id is not None
        self.add_space_prefix = self._flag(metadata, "add_space_prefix", flags.add_space_prefix)
        self.clean_spaces = flags.clean_spaces
        self.always_wrap = flags.always_wrap
        self._turn_texts: tuple[str, frozenset[str]] | None = None  # a template, and the user-defined tokens it writes
        self._special = SpecialTokens(vocab, *self._strippers(metadata))

    def __len__(self) -> int:
        return len(self.vocab)

    @staticmethod
    def _flag(metadata: dict[str, Any], name: str, default: bool) -> bool:
        return bool(metadata.get(f"tokenizer.ggml.{name}", default))

    def _strippers(self, metadata: dict[str, Any]) -> tuple[frozenset[int], frozenset[int]]:
        """Special tokens that strip whitespace to their right, and to their left, as in llama.cpp."""
        name = str(metadata.get("general.name", "")).lower()
        pre = str(metadata.get("tokenizer.ggml.pre", ""))
        ids = self.vocab.ids
        if "phi-3" in name or "phi3" in name:
            keep = {ids.get(t) for t in ("<unk>", "<s>", "<|endoftext|>")}
            return frozenset(i for i in self.vocab.special_ids if i not in keep), frozenset()
        if any(n in pre for n in ("jina-v2-de", "jina-v2-es", "jina-v2-code")) and "<mask>" in ids:
            return frozenset(), frozenset([ids["<mask>"]])
        if "modern-bert" in name and "[MASK]" in ids:
            return frozenset(), frozenset([ids["[MASK]"]])
        return frozenset(), frozenset()

    # -- encoding

    def encode(self, text: str, add_special: bool = False, parse_special: bool = False) -> list[int]:
        """Encode a text. add_special: add the model's BOS/EOS; parse_special: recognise control tokens."""
        try:
            text.encode()
        except UnicodeEncodeError:  # lone surrogates, from a JavaScript string cut within a pair
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        out: list[int] = []
        if add_special and self.bos_id is not None and (self.add_bos or self.always_wrap):
            out.append(self.bos_id)
        first = True
        for part in self._special.split(text, parse_special):
            if isinstance(part, int):
                out.append(part)
                first = True
                continue
            for piece in filter(None, part.split(BREAK)):
                out += self._texts.encode(piece, first)
                first = False
        if add_special:
            if self.always_wrap:
                end = self.vocab.special("sep")
                out += [] if end is None else [end]
            elif self.add_eos and self.eos_id is not None:
                out.append(self.eos_id)
        return out

    def encode_prompt(self, text: str) -> list[int]:
        """Encode a prompt: recognise control tokens, and start with BOS, once, if the model uses it."""
        ids = self.encode(text, parse_special=True)
        if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def broken(self, text: str, template: str, unbroken: frozenset[str] = frozenset()) -> str:
        """Break the special tokens in a text from outside, so that it cannot forge turns in a prompt.

        `template`: the chat template; user-defined tokens that it writes count as special, but for words and blanks.
        `unbroken`: the texts of tokens that stay whole. encode() does not join what was broken, remove_breaks() does.
        """
        if self._turn_texts is None or self._turn_texts[0] != template:
            defined = self._special.defined_in(template)
            marks = (text for text in defined if not all(c.isalnum() or c.isspace() for c in text))
            self._turn_texts = template, frozenset(marks)
        return self._special.broken(text, self._turn_texts[1], unbroken)

    @cached_property
    def end_texts(self) -> frozenset[str]:
        """The texts of the tokens that end an answer."""
        return frozenset(map(self.text_of, self.eog_ids))

    def text_of(self, token: int | None) -> str:
        """A token's text in the vocabulary; "" for None."""
        return "" if token is None else self.vocab.texts[token]

    # -- decoding

    def piece(self, token: int) -> bytes:
        """The bytes of a token. Special tokens give their text."""
        if not 0 <= token < len(self.vocab):
            raise WispError(
                f"{token} is not a token id: the vocabulary has {len(self.vocab)}.", "invalid_value", param="ids"
            )
        return self.model.piece(token)

    def shown_piece(self, token: int) -> bytes:
        """The bytes that a token adds to an answer."""
        return b"" if self.hidden(token) else self.piece(token)

    def hidden(self, token: int) -> bool:
        """Whether a token is a control or unknown token, which answers do not show."""
        return not 0 <= token < len(self.vocab) or self.vocab.types[token] in (CONTROL, UNKNOWN)

    def decode(self, ids: list[int]) -> str:
        """Decode ids with special tokens as text, like llama.cpp's detokenizer."""
        data = b"".join(map(self.piece, ids))
        if self.add_space_prefix and ids and self.piece(ids[0]).startswith(b" "):
            data = data[1:]
        if self.clean_spaces:
            data = _clean_spaces(data)
        return data.decode("utf-8", "replace")

    def stream(
        self, special: bool = False, strip_space: bool = False, shown: frozenset[int] = frozenset()
    ) -> "TextStream":
        """Create a streaming decoder.

        special: show all control tokens; shown: show these; strip_space: drop the space that the vocabulary prefixes.
        """
        return TextStream(self, special, strip_space and self.add_space_prefix, shown)


class TextStream:
    """A decoder of ids one by one. An incomplete character waits for its remaining bytes."""

    def __init__(
        self, tokenizer: Tokenizer, special: bool, strip_space: bool, shown: frozenset[int] = frozenset()
    ) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._shown = shown
        self._strip = strip_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def hides(self, token: int) -> bool:
        """Whether a token adds no text."""
        return not self._special and token not in self._shown and self._tokenizer.hidden(token)

    def push(self, token: int) -> str:
        """Decode a token: the text that it completes, possibly empty."""
        if self.hides(token):
            return ""
        data = self._tokenizer.piece(token)
        if self._strip and data:
            self._strip = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def finish(self) -> str:
        """The remaining text: U+FFFD for an incomplete character."""
        return self._decoder.decode(b"", True)


def remove_breaks(text: str) -> str:
    """The text that broken() was given."""
    return text.replace(BREAK, "")


def _clean_spaces(data: bytes) -> bytes:
    """Remove spaces in three passes: " ?" " !" " ." " ,", then " ' ", then " 's" " 'm" " 're" " 've"."""
    data = re.sub(rb" (?=[?!.,])", b"", data)
    data = re.sub(rb" ' ", b"'", data)
    return re.sub(rb" (?='(?:[sm]|re|ve))", b"", data)


def load_tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    """Create the tokenizer that a GGUF file's metadata describes. WispError unsupported_tokenizer."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind in ("gpt2", "gemma4", "whitespace", "hybriddna"):
        return _load_bpe(metadata, kind)
    if kind == "llama":
        from py_engine.text.tokenizers.spm import SPM

        vocab = Vocab(metadata, {"bos": 1, "eos": 2, "unknown": 0})
        prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
        flags = Flags(add_bos=True, add_space_prefix=prefix)
        return Tokenizer(vocab, SPM(vocab, metadata, prefix), metadata, flags)
    if kind == "bert":
        from py_engine.text.tokenizers.wpm import WPM

        vocab = Vocab(metadata, {"bos": 101, "unknown": 100, "sep": 102, "padding": 0, "mask": 103})
        flags = Flags(add_bos=True, clean_spaces=True, always_wrap=True)
        return Tokenizer(vocab, WPM(vocab, metadata), metadata, flags)
    if kind == "t5":
        from py_engine.text.tokenizers.ugm import UGM

        vocab = Vocab(metadata, {"eos": 1, "unknown": 2, "padding": 0})
        return Tokenizer(vocab, UGM(vocab, metadata), metadata, Flags(add_eos=True))
    if kind == "rwkv":
        from py_engine.text.tokenizers.rwkv import RWKV

        vocab = Vocab(metadata, {})
        return Tokenizer(vocab, RWKV(vocab), metadata, Flags())
    if kind in ("plamo2", "plamo3"):
        from py_engine.text.tokenizers.plamo import PLaMo

        vocab = Vocab(metadata, {"bos": 1, "eos": 2, "unknown": 0, "padding": 3})
        return Tokenizer(vocab, PLaMo(vocab, metadata, cuts=kind == "plamo3"), metadata, Flags())
    if kind is None:
        raise WispError("The GGUF file has no tokenizer (tokenizer.ggml.model).", "missing_metadata")
    raise WispError(
        f"Tokenizers of the kind {kind!r} are not supported. Supported: gpt2, llama, bert, t5, rwkv, plamo2, plamo3, "
        "whitespace, hybriddna.",
        "unsupported_tokenizer",
    )


def _load_bpe(metadata: dict[str, Any], kind: str) -> Tokenizer:
    from py_engine.text.tokenizers.bpe import BPE
    from py_engine.text.tokenizers.dna import HybridDNA
    from py_engine.text.tokenizers.whitespace import WhitespaceBPE

    name = str(metadata.get("tokenizer.ggml.pre") or "default") if kind != "gemma4" else "gemma4"
    pre = pretokenizer(name)
    vocab = Vocab(metadata, {} if kind == "gemma4" else {"bos": 11, "eos": 11})
    flags = Flags(add_bos=pre.add_bos, clean_spaces=pre.clean_spaces)
    model = {"whitespace": WhitespaceBPE, "hybriddna": HybridDNA}.get(kind, BPE)
    tokenizer = Tokenizer(vocab, model(vocab, metadata, pre), metadata, flags)
    if pre.gemma4:
        tokenizer.add_bos = tokenizer.bos_id is not None
    if not pre.known:
        tokenizer.notices.append(
            f'Wisp does not know the pre-tokenizer "{name}" and uses the default one; answers may be worse.'
        )
    return tokenizer
