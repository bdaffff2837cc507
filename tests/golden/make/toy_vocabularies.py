"""Tiny vocabularies of the three kinds of tokenizers, for the random models."""

from collections.abc import Callable
from functools import partial

from tests.golden.make.gguf_file import GgufFile

NORMAL, UNKNOWN, CONTROL, UNUSED, BYTE = 1, 2, 3, 5, 6  # gguf's token types

MERGES = [
    *["Ġ t", "Ġ a", "h e", "i n", "r e", "o n", "Ġt he", "e r", "Ġ s", "a t", "Ġ w", "Ġ o", "e n", "Ġ c", "i t"],
    *["i s", "a n", "o r", "e s", "Ġ b", "e d", "Ġ f", "in g", "Ġ p", "o u", "Ġa n", "a l", "a r", "Ġt o", "Ġ m"],
    *["Ġo f", "Ġ in", "Ġ d", "Ġ h", "Ġan d", "i c", "l e", "Ġ b e", "Ġ1", "0 0"],
]
PIECES = ["▁", "e", "t", "a", "o", "n", "i", "s", "r", "h", "l", "d", "u", "c", "m", "f", "w", "g", "y", "p", "b"]
PIECES += ["▁t", "he", "▁a", "in", "▁the", "er", "on", "re", "▁s", "at", "▁w", "en", "▁o", "an", "▁and", "ing", "▁to"]


def byte_characters() -> list[str]:
    """GPT-2's printable character for each byte."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    out: list[str] = []
    extra = 0
    for byte in range(256):
        if byte in printable:
            out.append(chr(byte))
        else:
            out.append(chr(256 + extra))
            extra += 1
    return out


def add_tokens(
    file: GgufFile, model: str, tokens: list[str], types: list[int], size: int, scores: list[float] | None = None
) -> None:
    """Add a vocabulary of `size` tokens, the missing ones unused."""
    assert size >= len(tokens), f"the {model} tokenizer needs at least {len(tokens)} tokens"
    padding = size - len(tokens)
    file.add("tokenizer.ggml.model", model)
    file.add("tokenizer.ggml.tokens", tokens + [f"[UNUSED{i}]" for i in range(padding)])
    file.add("tokenizer.ggml.token_type", types + [UNUSED] * padding)
    if scores:
        file.add("tokenizer.ggml.scores", scores + [-1e4] * padding)


def byte_pairs(file: GgufFile, size: int, special_tokens: tuple[str, ...] = ()) -> None:
    """Byte-level BPE: 256 bytes, a few merges, <|bos|>, <|eos|>, <|im_start|>, <|im_end|>, and more special tokens."""
    tokens = byte_characters()
    merges = []
    for pair in MERGES:
        parts = pair.split(" ")
        if len(parts) == 2 and all(part in tokens for part in parts):
            merges.append(pair)
            tokens.append("".join(parts))
    special = len(tokens)
    tokens += ["<|bos|>", "<|eos|>", "<|im_start|>", "<|im_end|>", *special_tokens]
    add_tokens(file, "gpt2", tokens, [NORMAL] * special + [CONTROL] * (len(tokens) - special), size)
    file.add("tokenizer.ggml.pre", "gpt-2")
    file.add("tokenizer.ggml.merges", merges)
    file.add("tokenizer.ggml.bos_token_id", special)
    file.add("tokenizer.ggml.eos_token_id", special + 1)
    file.add("tokenizer.ggml.add_bos_token", False)


def sentence_pieces(file: GgufFile, size: int) -> None:
    """SentencePiece with scores and byte fallback: <unk> <s> </s>, 256 bytes, a few pieces."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256 + [NORMAL] * len(PIECES)
    # Longer pieces score higher, so that they are merged first.
    scores = [0.0] * 259 + [-float(1000 - 100 * len(piece) + i) for i, piece in enumerate(PIECES)]
    add_tokens(file, "llama", tokens, types, size, scores)
    file.add("tokenizer.ggml.pre", "default")
    for name, token in (("bos", 1), ("eos", 2), ("unknown", 0)):
        file.add(f"tokenizer.ggml.{name}_token_id", token)
    file.add("tokenizer.ggml.add_bos_token", True)
    file.add("tokenizer.ggml.add_eos_token", False)


def plamo(file: GgufFile, model: str) -> None:
    """PLaMo: four special tokens, 256 bytes, pieces that overlap, and names that llama.cpp takes for markers."""
    tokens = ["<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>", "<|plamo:pad|>"]
    tokens += [f"<0x{byte:02X}>" for byte in range(256)]
    types = [UNKNOWN, CONTROL, CONTROL, CONTROL] + [BYTE] * 256
    pieces = [piece.replace("▁", " ") for piece in PIECES] + list("jkqvxzABCDEHILMNRSTWXYZ0123456789.,!?'-_/()")
    pieces += [
        "\n",
        "\t",
        "  ",
        "    ",
        "aaaa",
        "aa",
        "an a",
        "tha",
        "hat",
        "日",
        "本",
        "日本",
        "語",
        "é",
        "ñ",
        "😀",
        "12",
        "345",
    ]
    marks = ["<|plamo:fim_prefix|>", "<|plamo:fim_suffix|>", "<|plamo:fim_middle|>", "<|plamo:file_separator|>"]
    tokens += [*pieces, *marks, "<|plamo:chat|>", "</s>", "<s>", "never"]
    types += [NORMAL] * (len(tokens) - len(types))
    types[tokens.index("<|plamo:chat|>")] = CONTROL
    scores = [-(2.0 + 0.37 * (7 * i % 11)) * (0.6 + 0.4 * len(token)) for i, token in enumerate(tokens)]
    scores[tokens.index("never")] = -2000.0
    add_tokens(file, model, tokens, types, len(tokens), scores)
    for name, token in (("bos", 1), ("eos", 2), ("unknown", 0), ("padding", 3)):
        file.add(f"tokenizer.ggml.{name}_token_id", token)
    file.add("tokenizer.ggml.add_bos_token", True)


def rwkv(file: GgufFile, model: str) -> None:
    """RWKV: an end, all bytes, and byte strings that overlap or cut characters, escaped as in Python."""
    texts = [
        b" the",
        b"the",
        b"th",
        b"he",
        b" a",
        b"an",
        b" an a",
        b"  ",
        b"    ",
        b"\n\n",
        b"\r\n",
        b"\t\t",
        b"'s",
        b"\\",
    ]
    texts += [b"\\x", b"12", b"345", b"aaaa", b"aa", b"ing", b'"', b"\x00\x00", b"\xe6\x97", b"\xe6\x9c\xac\xe8"]
    texts += [text.encode() for text in ("日本", "語", "é", "ñ", "😀", "👩\u200d", "ä", "naïve")]
    pieces = [bytes([byte]) for byte in range(256)] + [text for text in texts if len(text) > 1]
    tokens = ["<s>", *(repr(piece)[2:-1] for piece in pieces)]
    add_tokens(file, model, tokens, [CONTROL, *[NORMAL] * len(pieces)], len(tokens) + 3)
    file.add("tokenizer.ggml.eos_token_id", 0)
    file.add("tokenizer.ggml.eot_token_id", tokens.index("\\n\\n"))


def word_pieces(file: GgufFile, size: int) -> None:
    """WordPiece (BERT) as llama.cpp writes it: words start with U+2581, continuations carry no '##'."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    types = [CONTROL, UNKNOWN, CONTROL, CONTROL, CONTROL]
    for character in "abcdefghijklmnopqrstuvwxyz0123456789.,!?'-":
        tokens += ["▁" + character, character]
    tokens += ["▁the", "▁and", "▁of", "▁hello", "▁world", "ing", "ed", "er", "▁to", "▁in"]
    types += [NORMAL] * (len(tokens) - 5)
    add_tokens(file, "bert", tokens, types, size)
    file.add("tokenizer.ggml.pre", "default")
    named = {"bos": 2, "eos": 3, "unknown": 1, "seperator": 3, "padding": 0, "cls": 2, "mask": 4}
    for name, token in named.items():
        file.add(f"tokenizer.ggml.{name}_token_id", token)
    file.add("tokenizer.ggml.token_type_count", 2)


# Around pictures and sound, of the projectors in media_cases.json.
MEDIA_TOKENS: tuple[str, ...] = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|image_start|>",
    "<|image_end|>",
    "<vision>",
    "</vision>",
)
MEDIA_TOKENS += ("<|media_begin|>", "<|media_end|>", "<|audio_comp_start|>", "<|audio_comp_end|>")
MEDIA_TOKENS += ("]<]start of image[>[", "]<]end of image[>[", "<|img|>", "<|endofimg|>")
MEDIA_TOKENS += ("<|mimo_audio_start|>", "<|mimo_audio_end|>")
MEDIA_TOKENS += ("<|START_OF_IMG|>", "<|IMG_LINE_BREAK|>", "<|END_OF_IMG|>")
MEDIA_TOKENS += ("<patch_start>", "<patch_end>", "<patch_newline>", "<im_start>", "<im_end>")

ADD: dict[str, Callable[[GgufFile, int], None]] = {
    "bpe": byte_pairs,
    "media": partial(byte_pairs, special_tokens=MEDIA_TOKENS),
    "spm": sentence_pieces,
    "wpm": word_pieces,
}
