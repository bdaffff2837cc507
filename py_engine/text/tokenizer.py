"""Text to token ids and back, as llama.cpp does it, from the metadata of a GGUF file."""

import codecs
import itertools
from typing import Any, Protocol

from py_engine.errors import WispError
from py_engine.text.pretokenize import pretokenizer
from py_engine.text.tokenizers.vocab import CONTROL, UNKNOWN, USER_DEFINED, Vocab

_BLANKS = " \t\n\v\f\r"


class Model(Protocol):
    """What a file of tokenizers/ provides."""

    def encode(self, text: str, first: bool = False) -> list[int]:
        """Ids of a text without special tokens; `first`: it starts the input or follows a special token."""

    def piece(self, token: int) -> bytes:
        """The bytes of a token."""


class Tokenizer:
    """Encodes and decodes; knows the special tokens. Made by load_tokenizer."""

    def __init__(self, vocab: Vocab, model: Model, metadata: dict[str, Any], flags: dict[str, bool]) -> None:
        self.vocab = vocab
        self.model = model
        self.notices: list[str] = []
        self.bos_id, self.eos_id = vocab.special("bos"), vocab.special("eos")
        self.eog_ids = vocab.eog_ids  # any of them ends an answer
        self.add_bos = self._flag(metadata, "add_bos_token", flags["add_bos"]) and self.bos_id is not None
        self.add_eos = self._flag(metadata, "add_eos_token", flags["add_eos"]) and self.eos_id is not None
        self.add_space_prefix = flags["add_space_prefix"]
        self.clean_spaces = flags["clean_spaces"]
        self.always_wrap = flags.get("always_wrap", False)  # WPM: [CLS] ... [SEP] whatever the flags say
        self._strip_right, self._strip_left = self._strippers(metadata)

    def __len__(self) -> int:
        return len(self.vocab)

    @staticmethod
    def _flag(metadata: dict[str, Any], name: str, default: bool) -> bool:
        return bool(metadata.get(f"tokenizer.ggml.{name}", default))

    def _strippers(self, metadata: dict[str, Any]) -> tuple[frozenset[int], frozenset[int]]:
        """Special tokens that swallow the blanks to their right, and to their left."""
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
        """Ids of a text. add_special: with the model's BOS/EOS; parse_special: control tokens are recognised."""
        try:
            text.encode()
        except UnicodeEncodeError:  # lone surrogates, from a JavaScript string cut in the middle
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        out: list[int] = []
        if add_special and self.bos_id is not None and (self.add_bos or self.always_wrap):
            out.append(self.bos_id)
        first = True
        for part in self._split_special(text, parse_special):
            if isinstance(part, int):
                out.append(part)
                first = True
            else:
                out += self.model.encode(part, first)
                first = False
        if add_special:
            if self.always_wrap:
                end = self.vocab.special("sep")
                out += [] if end is None else [end]
            elif self.add_eos and self.eos_id is not None:
                out.append(self.eos_id)
        return out

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of a prompt: control tokens are recognised, BOS comes first where the model wants it, and only once."""
        ids = self.encode(text, parse_special=True)
        if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def _split_special(self, text: str, parse_special: bool) -> list[str | int]:
        """Cuts out special tokens, the longest first wherever they are; user-defined ones always, others if asked."""
        if not text:
            return []
        parts: list[str | int] = [text]
        texts, types = self.vocab.texts, self.vocab.types
        heads = {a + b for a, b in itertools.pairwise(text)}  # most special tokens are ruled out by these
        heads.update(text)
        for token in self.vocab.special_ids:
            word = texts[token]
            if word[:2] not in heads or (not parse_special and types[token] != USER_DEFINED) or word not in text:
                continue
            cut: list[str | int] = []
            for part in parts:
                if isinstance(part, int) or word not in part:
                    cut.append(part)
                else:
                    cut += self._cut(part, word, token)
            parts = cut
        return parts

    def _cut(self, text: str, word: str, token: int) -> list[str | int]:
        out: list[str | int] = []
        pieces = text.split(word)
        for i, whole in enumerate(pieces):
            if i:
                out.append(token)
            piece = whole.lstrip(_BLANKS) if i and token in self._strip_right else whole
            if token in self._strip_left and i < len(pieces) - 1:
                piece = piece.rstrip(_BLANKS)
            if piece:
                out.append(piece)
        return out

    def text_of(self, token: int | None) -> str:
        """A token as the vocabulary writes it; nothing for None."""
        return "" if token is None else self.vocab.texts[token]

    # -- decoding

    def piece(self, token: int) -> bytes:
        """The bytes of one token; special tokens as their text."""
        if not 0 <= token < len(self.vocab):
            raise WispError(
                f"{token} is not a token id: the vocabulary has {len(self.vocab)}.", "invalid_value", param="ids"
            )
        return self.model.piece(token)

    def hidden(self, token: int) -> bool:
        """A control or unknown token, not shown in an answer."""
        return not 0 <= token < len(self.vocab) or self.vocab.types[token] in (CONTROL, UNKNOWN)

    def decode(self, ids: list[int]) -> str:
        """The text of ids with special tokens spelled out, as llama.cpp's detokenizer gives it."""
        data = b"".join(map(self.piece, ids))
        if self.add_space_prefix and ids and self.piece(ids[0]).startswith(b" "):
            data = data[1:]
        if self.clean_spaces:
            data = _clean_spaces(data)
        return data.decode("utf-8", "replace")

    def stream(
        self, special: bool = False, strip_space: bool = False, shown: frozenset[int] = frozenset()
    ) -> "TextStream":
        """A streaming decoder. special: shows control tokens, `shown` only some; strip_space: drops the vocabulary's
        prefixed space.
        """
        return TextStream(self, special, strip_space and self.add_space_prefix, shown)


class TextStream:
    """Turns ids into text as they come; a character cut between tokens waits for its rest."""

    def __init__(
        self, tokenizer: Tokenizer, special: bool, strip_space: bool, shown: frozenset[int] = frozenset()
    ) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._shown = shown
        self._strip = strip_space
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def hides(self, token: int) -> bool:
        """A token that adds no text."""
        return not self._special and token not in self._shown and self._tokenizer.hidden(token)

    def push(self, token: int) -> str:
        """The text that this token completes, possibly none."""
        if self.hides(token):
            return ""
        data = self._tokenizer.piece(token)
        if self._strip and data:
            self._strip = False
            data = data.removeprefix(b" ")
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left: U+FFFD for a character that never ended."""
        return self._decoder.decode(b"", True)


def _clean_spaces(data: bytes) -> bytes:
    """Three passes over English spacing: " ?" " !" " ." " ,", a lone " ' ", and " 's" " 'm" " 're" " 've"."""
    out = bytearray(data[:1])
    for i in range(1, len(data)):
        if data[i - 1] == 0x20 and data[i] in b"?!.,":
            out.pop()
        out.append(data[i])
    data, out = bytes(out), bytearray(out[:1])
    i = 1
    while i < len(data):
        if data[i] == 0x27 and data[i - 1 : i + 2] == b" ' ":
            out[-1:] = b"'"
            i += 2
            if i <= len(data):
                continue
        out.append(data[i])
        i += 1
    data, out = bytes(out), bytearray(out[:1])
    for i in range(1, len(data)):
        if data[i - 1 : i + 1] == b" '" and (
            data[i + 1 : i + 2] in (b"s", b"m") or data[i + 1 : i + 3] in (b"re", b"ve")
        ):
            out.pop()
        out.append(data[i])
    return bytes(out)


def load_tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    """The tokenizer that a GGUF file's metadata describes; unsupported_tokenizer when there is none for it."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind in ("gpt2", "gemma4"):
        return _load_bpe(metadata, kind)
    if kind == "llama":
        from py_engine.text.tokenizers.spm import SPM

        vocab = Vocab(metadata, {"bos": 1, "eos": 2, "unknown": 0})
        prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", True))
        flags = {"add_bos": True, "add_eos": False, "add_space_prefix": prefix, "clean_spaces": False}
        return Tokenizer(vocab, SPM(vocab, metadata, prefix), metadata, flags)
    if kind == "bert":
        from py_engine.text.tokenizers.wpm import WPM

        vocab = Vocab(metadata, {"bos": 101, "unknown": 100, "sep": 102, "padding": 0, "mask": 103})
        flags = {
            "add_bos": True,
            "add_eos": False,
            "add_space_prefix": False,
            "clean_spaces": True,
            "always_wrap": True,
        }
        return Tokenizer(vocab, WPM(vocab, metadata), metadata, flags)
    if kind == "t5":
        from py_engine.text.tokenizers.ugm import UGM

        vocab = Vocab(metadata, {"eos": 1, "unknown": 2, "padding": 0})
        prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", False))
        flags = {"add_bos": False, "add_eos": True, "add_space_prefix": prefix, "clean_spaces": False}
        return Tokenizer(vocab, UGM(vocab, metadata), metadata, flags)
    if kind == "rwkv":
        from py_engine.text.tokenizers.rwkv import RWKV

        vocab = Vocab(metadata, {})
        flags = {"add_bos": False, "add_eos": False, "add_space_prefix": False, "clean_spaces": False}
        return Tokenizer(vocab, RWKV(vocab), metadata, flags)
    if kind is None:
        raise WispError("The GGUF file has no tokenizer (tokenizer.ggml.model).", "missing_metadata")
    raise WispError(
        f"The model's tokenizer is of the kind {kind!r}; Wisp has gpt2, llama, bert, t5 and rwkv.",
        "unsupported_tokenizer",
    )


def _load_bpe(metadata: dict[str, Any], kind: str) -> Tokenizer:
    from py_engine.text.tokenizers.bpe import BPE

    name = str(metadata.get("tokenizer.ggml.pre") or "default") if kind == "gpt2" else "gemma4"
    pre = pretokenizer(name)
    vocab = Vocab(metadata, {"bos": 11, "eos": 11} if kind == "gpt2" else {})
    prefix = bool(metadata.get("tokenizer.ggml.add_space_prefix", False))
    flags = {"add_bos": pre.add_bos, "add_eos": False, "add_space_prefix": prefix, "clean_spaces": pre.clean_spaces}
    tokenizer = Tokenizer(vocab, BPE(vocab, metadata, pre), metadata, flags)
    if name == "gemma4":
        tokenizer.add_bos = tokenizer.bos_id is not None
    if not pre.known:
        tokenizer.notices.append(
            f'Wisp does not know the pre-tokenizer "{name}" and uses the default one; answers may be worse.'
        )
    return tokenizer
