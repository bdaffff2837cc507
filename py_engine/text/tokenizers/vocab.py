"""The vocabulary of a GGUF file: token texts, types and special ids, with llama.cpp's corrections."""

from collections.abc import Sequence
from typing import Any

from py_engine.errors import WispError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6  # tokenizer.ggml.token_type

MAX_LENGTH = 1024  # characters of a token

# Texts of tokens that are end-of-generation and control tokens, regardless of the metadata and of their type.
END_TEXTS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "</s>", "<|eom_id|>",
    "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<end_of_utterance>",
    "<eos>", "<turn|>", "<|tool_response>", "<\uff5cend▁of▁sentence\uff5c>", "[e~[",
)  # fmt: skip
# Fill-in-the-middle markers: metadata key -> texts; the first one in the vocabulary is the marker.
FIM_TEXTS = {
    "fim_pre": "<|fim_prefix|> <fim-prefix> <fim_prefix> <\uff5cfim▁begin\uff5c> <PRE> ▁<PRE> "
    "<|code_prefix|> <|prefix|> <|plamo:fim_prefix|>",
    "fim_suf": "<|fim_suffix|> <fim-suffix> <fim_suffix> <\uff5cfim▁hole\uff5c> <SUF> ▁<SUF> "
    "<|code_suffix|> <|suffix|> <|plamo:fim_suffix|>",
    "fim_mid": "<|fim_middle|> <fim-middle> <fim_middle> <\uff5cfim▁end\uff5c> <MID> ▁<MID> <|code_middle|> <|middle|> "
    "<|plamo:fim_middle|>",
    "fim_pad": "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]",
    "fim_rep": "<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>",
    "fim_sep": "<|file_sep|> <|plamo:file_separator|>",
}
ENDING_FIM = ("fim_pad", "fim_rep", "fim_sep")
HARMONY_TEXTS = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")  # always shown and always split off


class Vocab:
    """Token texts and types by id, ids by text, and special ids."""

    def __init__(self, metadata: dict[str, Any], defaults: dict[str, int]) -> None:
        """`defaults`: special ids if the metadata lacks them: {"bos": 1, ...}."""
        texts = metadata.get("tokenizer.ggml.tokens")
        if not isinstance(texts, list) or not texts or not isinstance(texts[0], str):
            raise WispError("The GGUF file has no vocabulary (tokenizer.ggml.tokens).", "missing_metadata")
        if any(len(text) > MAX_LENGTH for text in texts):
            raise WispError(f"A token of the vocabulary has more than {MAX_LENGTH} characters.", "corrupt_header")
        self.texts: list[str] = texts
        self.ids: dict[str, int] = dict(zip(reversed(texts), range(len(texts) - 1, -1, -1), strict=True))
        types = numbers(metadata, "token_type", len(texts))
        self.types: list[int] = [int(t) for t in types[: len(texts)]] if types else [NORMAL] * len(texts)
        self._special: dict[str, int] = {}
        for name, default in defaults.items():
            self._set_special(name, default)
        for name in ("bos", "eos", "eot", "eom", "unknown", "padding", "mask", "cls"):
            self._set_special(name, metadata.get(f"tokenizer.ggml.{name}_token_id"))
        for key in ("seperator", "separator"):  # the format's own spelling first
            self._set_special("sep", metadata.get(f"tokenizer.ggml.{key}_token_id"))
        for name in FIM_TEXTS:
            self._set_special(name, metadata.get(f"tokenizer.ggml.{name}_token_id"))
        plamo = str(metadata.get("tokenizer.ggml.model")).startswith("plamo")  # whose </s> is HTML's
        self.eog_ids: frozenset[int] = self._correct([text for text in END_TEXTS if not (plamo and text == "</s>")])
        marked = [i for i, t in enumerate(self.types) if t in (CONTROL, USER_DEFINED, UNKNOWN) and texts[i]]
        self.special_ids = sorted(marked, key=lambda i: -len(texts[i].encode("utf-8", "replace")))

    def __len__(self) -> int:
        return len(self.texts)

    def special(self, name: str) -> int | None:
        """The id of "bos", "eos", "sep", "unknown" ..., or None."""
        return self._special.get(name)

    def _set_special(self, name: str, value: Any) -> None:
        if type(value) is int and 0 <= value < len(self.texts):
            self._special[name] = value

    def _correct(self, end_texts: Sequence[str]) -> frozenset[int]:
        """Correct types by well-known texts, as llama.cpp does; return the end-of-generation ids."""
        ids, types = self.ids, self.types
        for name, texts in FIM_TEXTS.items():
            if name not in self._special:
                found = next((ids[t] for t in texts.split() if t in ids), None)
                if found is not None:
                    self._special[name] = found
                    types[found] = CONTROL
        ends = {self._special[name] for name in ENDING_FIM if name in self._special}
        for text in end_texts:
            if text in ids:
                ends.add(ids[text])
                types[ids[text]] = CONTROL
        for text in HARMONY_TEXTS:
            if text in ids:
                types[ids[text]] = USER_DEFINED
        ends.update(self._special[name] for name in ("eos", "eot", "eom") if name in self._special)
        found_ends = {self.texts[i] for i in ends}
        calls = "<|call|>" in found_ends or "<|calls|>" in found_ends
        if "<|end|>" in found_ends and calls and ("<|return|>" in found_ends or "<|flush|>" in found_ends):
            ends.discard(ids["<|end|>"])  # in Harmony it ends a message, not the answer
            types[ids["<|end|>"]] = USER_DEFINED
        if "<|tool_response>" in found_ends and "</s>" in found_ends:
            ends.discard(ids["</s>"])
            types[ids["</s>"]] = NORMAL
        return frozenset(ends)


def numbers(metadata: dict[str, Any], name: str, count: int) -> list[float]:
    """A list of at least `count` finite numbers of the tokenizer's metadata, empty if it is absent."""
    given = metadata.get(f"tokenizer.ggml.{name}")
    if given is None:
        return []
    if not isinstance(given, list) or not all(isinstance(n, int | float) and n - n == 0 for n in given):
        raise WispError(f"tokenizer.ggml.{name} must be a list of numbers.", "corrupt_header")
    if len(given) < count:
        raise WispError(f"tokenizer.ggml.{name} is shorter than the vocabulary.", "corrupt_header")
    return given


def byte_of(text: str) -> bytes:
    """The byte of a token like <0x0A>; b"" if it is written differently."""
    try:
        return bytes([int(text[3:5], 16)])
    except ValueError:
        return b""
