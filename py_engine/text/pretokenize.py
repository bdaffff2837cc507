"""Pre-tokenizers: split text into words before BPE merges them. tokenizer.ggml.pre -> regular expressions and flags.

The expressions apply one after the other, each to the pieces left by the one before. Its matches become pieces, and so
does the text between them. The expressions are those that the models were trained with, as llama.cpp has them, except
that no text takes them more than proportional time.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_ENDINGS = r"'(?:[sdmtSDMT]|[rR][eE]|[vV][eE]|[lL][lL])"  # English contractions, either case
_ENDING_OPT = f"(?:{_ENDINGS})?"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SIGNS_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_HAN_KANA = r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
# Excludes spaces in these ranges, such as the ideographic one: llama.cpp treats them like other spaces.
_ASIAN = r"(?:(?!\s)[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff])+"
_ASCII_SIGNS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"
_DEEPSEEK3 = (
    _ASCII_SIGNS + r"[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + _SPACES
)  # fmt: skip
_BLOOM = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
# cased letters as one tokenizer lists them, without Georgian and mathematical letters
_CASED = r"(?:(?![\u10d0-\u10ff\U0001d400-\U0001d7ff])[\p{Lu}\p{Ll}\p{Lt}])+"
_AFMOE_SCRIPTS = (
    r"[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f"
    r"\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)


def _words(digits: str, endings: str = _ENDINGS + "|", signs: str = _SIGNS, word: str = _WORD) -> str:
    """The family of Llama 3 and Qwen 2. Members differ in the digits per piece and in details."""
    return f"{endings}{word}|{digits}|{signs}|{_SPACES}"


def _cased_words(upper: str, lower: str, digits: str, endings: str, signs: str = _SIGNS_SLASH) -> str:
    """The family of GPT-4o. A word is upper-case then lower-case letters, so camelCase is split."""
    lead = r"[^\r\n\p{L}\p{N}]?"
    return f"{lead}{upper}*{lower}+{endings}|{lead}{upper}+{lower}*{endings}|{digits}|{signs}|{_SPACES}"


def _uncased_words(digits: str) -> str:
    """_cased_words() without cuts at a change of case: llama.cpp reads the authors' classes of cases as any letter."""
    return rf"[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+{_ENDING_OPT}|{digits}|{_SIGNS_SLASH}|{_SPACES}"


_UP, _LOW = r"(?:(?![a-z])\p{L})", r"(?:(?![A-Z])\p{L})"
_UP_M, _LOW_M = r"(?:(?![a-z])[\p{L}\p{M}])", r"(?:(?![A-Z])[\p{L}\p{M}])"
_HAN = r"[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002ebef\U0002f800-\U0002fa1f]"


@dataclass(frozen=True)
class DigitGroups:
    """Groups of three digits from the right, within each match of `runs`. As one expression this is quadratic."""

    runs: str
    open_start: bool = False  # the first group includes the text before it
    open_end: bool = False  # the last group includes what follows

    def cuts(self, expression: Any, text: str) -> list[int]:
        """The places where the text is cut. `expression`: `runs`, compiled."""
        out: list[int] = []
        for match in expression.finditer(text):
            start, end = match.span()
            out += range(start + ((end - start) % 3 or 3), end, 3)
            out += [] if self.open_start else [start]
            out += [] if self.open_end else [end]
        return out


_THREES = DigitGroups(r"\p{N}+", open_start=True)

_SPLITS: dict[str, tuple[str | DigitGroups, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"),
    "llama3": (_words(r"\p{N}{1,3}"),),
    "qwen2": (_words(r"\p{N}"),),
    "qwen35": (_words(r"\p{N}", signs=r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", word=r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+"),),
    "ufakzeka": (_words(r"\p{N}", endings=""),),
    "gpt2": (_GPT2,),
    "starcoder": (r"\p{N}", _GPT2),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"),
    "deepseek-llm": (
        r"[\r\n]",
        r"\s?" + _CASED,
        r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3001\u3002]+",
        r"(?<!\s)\s++$",
        _ASIAN,
        r"\p{N}+",
    ),
    "deepseek-coder": (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _ASIAN, r"\p{N}"),
    "deepseek-v3": (r"\p{N}{1,3}", _HAN_KANA, _DEEPSEEK3),
    "spark2_5": (
        r"\p{N}{1,3}",
        _HAN_KANA,
        _ASCII_SIGNS + r"[A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+",
        r"\p{N}",
    ),
    "youtu": (
        r"[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f"
        r"\ufe30-\ufe4f]+|[\u3105-\u312f]+|" + _HAN_KANA,
        _uncased_words(r"\p{N}"),
    ),
    "tekken": (_cased_words(_UP, _LOW, r"\p{N}", ""),),
    "gpt-4o": (_cased_words(_UP, _LOW, r"\p{N}{1,3}", _ENDING_OPT),),
    "granite-embed": (_cased_words(_UP_M, _LOW_M, r"\p{N}{1,3}", _ENDING_OPT),),
    "tiny_aya": (_THREES, _uncased_words(r"\p{N}{1,3}")),
    "kimi-k2": (
        rf"{_HAN}+|[^\r\n\p{{L}}\p{{N}}]?(?:(?!{_HAN})\p{{L}})+{_ENDING_OPT}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}",
    ),
    "whitespace": (r"\S+",),
    "bloom": (_BLOOM,),
    "viking": (_BLOOM, r"\p{N}"),
    "chameleon": (
        r"<sentinel:[0-9]+>",
        r"IMGIMG[A-I]{1,4}Z",
        r"[\t\n]|    |  ",
        r"\p{N}",
        r"[\p{P}!-/:-@\[-`{-~]",
        _GPT2,
    ),
    "superbpe": (r"\p{N}+", DigitGroups(r"\d+", open_end=True)),
    "bailingmoe": (
        _ENDINGS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    "seed-coder": (_words(r"\p{N}", signs=r" ?[^\s\p{L}\p{N}\r\n]+"),),
    "afmoe": (_THREES, _AFMOE_SCRIPTS, _DEEPSEEK3),
    "laguna": (r"[^\n]+|\n+", _words(r"\p{N}")),
    "exaone-moe": (
        _ENDINGS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
        r"|\s*[\r\n]|\s+(?!\S)|\s+",
    ),
    "jais-2": (
        f"{_ENDINGS}|{_WORD}|" + r"\p{N}{1,3}|" + _SIGNS + r"|\s*[\r\n]+"
        + "".join(rf"|\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s",
    ),
    "minicpm5": (r"\p{N}{1,3}", _words(r"\p{N}+")),
    "lines": (r"[^\n]+|\n+",),
}  # fmt: skip

# name of a split above -> other values of tokenizer.ggml.pre that use it
_FAMILIES = {
    "llama3": "llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano dbrx smaug-bpe glm4 glm5 "
    "chatglm-bpe",
    "qwen2": "deepseek-r1-qwen kormo f2llmv2 stablelm2 megrez hunyuan solar-open grok-2",
    "gpt2": "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert jina-v1-en "
    "jina-v2-code roberta-bpe mpt olmo jais exaone4 trillion granite-docling",
    "starcoder": "refact command-r smollm codeshell exaone minerva-7b mellum2",
    "deepseek-v3": "hunyuan-dense joyai-llm hy_v4",
    "gpt-4o": "llama4 kanana2 talkie minimax-m2",
    "bloom": "poro-chat gpt3-finnish",
    "bailingmoe": "bailingmoe2 llada-moe",
    "tiny_aya": "cohere2moe",
    "lines": "gemma4 granite-embed-multi-311m sarvam-moe",
    "granite-embed": "granite-embed-multi-97m",
}
_NAMES = {name: name for name in _SPLITS} | {
    name: family for family, names in _FAMILIES.items() for name in names.split()
}


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_LLAMA3 = "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano "
_IGNORE_MERGES = _set(_LLAMA3 + "glm4 glm5 minicpm5 youtu tekken granite-embed-multi-97m")
_ADD_BOS = _set(_LLAMA3 + "tekken chameleon")
_GEMMA4 = _set("gemma4 granite-embed-multi-311m")
# names for which llama.cpp's detokenizer does not join punctuation to the word before it
_KEEP_SPACES = _set(
    "deepseek-llm deepseek-coder deepseek-v3 spark2_5 youtu sarvam-moe command-r qwen2 deepseek-r1-qwen kormo f2llmv2 "
    "qwen35 poro-chat viking tekken smollm chameleon gpt-4o llama4 kanana2 talkie granite-embed-multi-97m tiny_aya "
    "cohere2moe superbpe trillion granite-docling bailingmoe bailingmoe2 llada-moe seed-coder hunyuan hunyuan-dense "
    "hy_v4 joyai-llm kimi-k2 ufakzeka grok-2 afmoe laguna minimax-m2 solar-open"
)


@dataclass
class Pretokenizer:
    """A pre-tokenizer. `name`: the value of tokenizer.ggml.pre."""

    name: str
    expressions: tuple[str | DigitGroups, ...]
    known: bool  # False: the name is unknown and "default" replaces it
    ignore_merges: bool = False  # a word that is a token is not merged from characters
    add_bos: bool = False  # default of tokenizer.ggml.add_bos_token
    clean_spaces: bool = True
    byte_level: bool = True  # False: raw text, unknown characters as <0xXX>
    escape_spaces: bool = False  # spaces become ▁ first
    gemma4: bool = False  # BOS whatever the metadata says; a run of newlines that is a token is not merged
    _compiled: list[Any] | None = None

    def split(self, text: str) -> list[str]:
        """Split a text into words, whose concatenation is the text."""
        if self._compiled is None:
            import regex  # a compiled package that only BPE vocabularies need

            self._compiled = [regex.compile(e.runs if isinstance(e, DigitGroups) else e) for e in self.expressions]
        pieces = [text] if text else []
        for given, expression in zip(self.expressions, self._compiled, strict=True):
            pieces = [word for piece in pieces for word in _cut(given, expression, piece)]
        return pieces


def _cut(given: str | DigitGroups, expression: Any, text: str) -> list[str]:
    """The matches and the text between them, without empty pieces."""
    if isinstance(given, DigitGroups):
        cuts = sorted({0, len(text), *given.cuts(expression, text)})
        return [text[a:b] for a, b in pairwise(cuts)]
    out: list[str] = []
    at = 0
    for match in expression.finditer(text):
        start, end = match.span()
        if start > at:
            out.append(text[at:start])
        if end > start:
            out.append(text[start:end])
        at = end
    if at < len(text):
        out.append(text[at:])
    return out


def pretokenizer(name: str) -> Pretokenizer:
    """The pre-tokenizer of that name. For unknown names the default one, with known=False."""
    known = name in _NAMES
    key = name if known else "default"
    return Pretokenizer(
        name=key,
        expressions=_SPLITS[_NAMES[key]],
        known=known,
        ignore_merges=key in _IGNORE_MERGES,
        add_bos=key in _ADD_BOS,
        clean_spaces=key not in _KEEP_SPACES,
        byte_level=_NAMES[key] not in ("lines", "whitespace"),
        escape_spaces=_NAMES[key] == "lines",
        gemma4=key in _GEMMA4,
    )
