"""The header of a draft model, which is loaded beside the model that it drafts for.

Its tensors get names that begin with DRAFT, unlike the model's. Both must have the same vocabulary, because the draft's
tokens go to the model as they are. Only the model may have more tokens at the end: larger models of a family often have
more rows for padding.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header
from py_engine.files.tensor_types import TensorType as Q

ASSISTANT = "gemma4-assistant"  # drafts from the model's hidden states and caches (models/gemma4_assistant.py)
ASSISTED = "gemma4"  # the architecture that assistants draft for
EAGLE = "eagle3"  # drafts from the hidden states of three of the model's layers (models/eagle.py)
# drafts several tokens at once from the hidden states of some of the model's layers (models/dflash.py)
DFLASH = "dflash"
# Architectures for which llama.cpp exports layer inputs and Wisp keeps one residual stream.
EAGLE_TARGETS = ("gemma4", "gpt-oss", "llama", "minimax-m2", "qwen3", "qwen35", "qwen35moe", "qwen3moe", "qwen3next")
DFLASH_TARGETS = tuple(sorted((*EAGLE_TARGETS, "k2-horizon", "mimo2", "minimax-01", "muse-glimmer")))
NAMES = {ASSISTANT: "assistant", EAGLE: "EAGLE-3 head", DFLASH: "DFlash model"}  # in errors
TARGETS = {EAGLE: EAGLE_TARGETS, DFLASH: DFLASH_TARGETS}  # the architectures that a draft model may be made for
DRAFT = "draft."  # what the names of a draft model's tensors begin with, and of its weights, buffers and lists
TOKENS = "d2t"  # the tensor with the model's token for each one of a reduced vocabulary
KIND = "tokenizer.ggml.model"
MOST_TOKENS = 1 << 20  # of a reduced vocabulary
MOST_MORE = 128  # tokens that the model may have at the end, as in llama.cpp
# Errors of a file's content, whatever model it is of.
OF_CONTENT = (
    "bad_tensor_shape", "corrupt_header", "missing_metadata", "missing_tensor", "unsupported_architecture",
    "unsupported_quantization",
)  # fmt: skip
FIELD = "draft"  # of a load request: the file
ADVICE = "Give a smaller model of the same family, or load without draft."


@contextmanager
def errors_of_draft() -> Iterator[None]:
    """A context whose errors about a file's content are about the draft model's: they name it, and the field FIELD."""
    try:
        yield
    except WispError as error:
        if error.param or error.code not in OF_CONTENT:
            raise
        text, general = error.message, "The GGUF file "
        begin = "The draft model's file "
        text = begin + text.removeprefix(general) if text.startswith(general) else f"{begin.strip()}: {text}"
        raise error.reworded(text, FIELD) from None


def field_of(tensor: str) -> str | None:
    """The field of a load request that gave the file of a tensor: FIELD; None: the model's."""
    return FIELD if tensor.startswith(DRAFT) else None


def is_assistant(header: Header) -> bool:
    """Whether a draft model is an assistant of its model: it has no caches and runs with no other."""
    return header.architecture == ASSISTANT


def is_eagle(header: Header) -> bool:
    """Whether a draft model is an EAGLE-3 head of its model: it runs with no other."""
    return header.architecture == EAGLE


def is_dflash(header: Header) -> bool:
    """Whether a draft model is a DFlash model, which runs with no other model than its own."""
    return header.architecture == DFLASH


def reads_states(header: Header) -> bool:
    """Whether a draft model reads hidden states of its model's layers, and has keys and values of them."""
    return is_eagle(header) or is_dflash(header)


def unfit(architecture: str, why: str) -> WispError:
    """The error for a draft model of an architecture in NAMES that was made for another model."""
    what = NAMES[architecture]
    return WispError(
        f"This {what} does not fit the model: {why}. Give the {what} of this model, or load without draft.",
        "draft_mismatch",
        param=FIELD,
    )


def unsupported(architecture: str, why: str) -> WispError:
    """The error for a draft model of an architecture in NAMES that Wisp cannot run with any model."""
    text = f"This {NAMES[architecture]} {why}. Use another one, or load without draft."
    return WispError(text, "unsupported_architecture", param=FIELD)


def target_layers(header: Header) -> list[int]:
    """The model's layers whose inputs a draft model reads. WispError corrupt_header or unsupported_architecture."""
    layers = header.arch("target_layers")
    if not (isinstance(layers, list) and layers and all(type(layer) is int for layer in layers)):
        text = f"{header.architecture}.target_layers is {layers!r:.100}; it must be a list of numbers."
        raise WispError(text, "corrupt_header")
    if min(layers) < 1:
        why = f"reads the inputs of the layers {layers!r:.100}, Wisp has those of layer 1 and later ones"
        raise unsupported(header.architecture, why)
    return layers


def has_tokens(header: Header) -> bool:
    """Whether an EAGLE-3 head or a DFlash model knows some of its model's tokens only.

    WispError corrupt_header if they are no list.
    """
    info = header.tensors.get(TOKENS) if reads_states(header) else None
    if info is None:
        return False
    if info.type != Q.I64 or len(info.shape) != 1 or not 0 < info.shape[0] <= MOST_TOKENS:
        raise WispError(
            f"{described(DRAFT + TOKENS)} is {info.type.name}, {info.shape}. It must be a list of at most "
            f"{MOST_TOKENS:,} tokens, as I64.",
            "corrupt_header",
            param=FIELD,
        )
    return True


def read_tokens(data: bytes) -> list[int]:
    """The model's tokens that such a draft model knows, from the bytes of the tensor TOKENS."""
    return list(struct.unpack(f"<{len(data) // 8}q", data))


def check_tokens(tokens: Sequence[int] | None, vocab: int) -> str:
    """What is wrong with the tokens of a reduced vocabulary, of a model with `vocab` tokens; "" if nothing is."""
    if tokens is None:
        return ""
    if not all(0 <= token < vocab for token in tokens):
        return f"its {TOKENS} has tokens that are none of the model's {vocab}"
    return f"its {TOKENS} has a token twice" if len(set(tokens)) < len(tokens) else ""


def prefixed(header: Header) -> Header:
    """The header of a draft model's file with its tensors' names prefixed."""
    tensors = {DRAFT + name: replace(info, name=DRAFT + name) for name, info in header.tensors.items()}
    return replace(header, tensors=tensors)


def described(tensor: str) -> str:
    """A tensor in an error's text: its name in its file, and which file if that is the draft model's."""
    if tensor.startswith(DRAFT):
        return f"Tensor {tensor.removeprefix(DRAFT)} of the draft model's file"
    return f"Tensor {tensor}"


def check_draft(model: Header, draft: Header) -> None:
    """Raise WispError draft_mismatch if the draft model's vocabulary differs, or if it drafts for other models."""
    error = partial(unfit, draft.architecture) if draft.architecture in NAMES else _mismatch
    if is_assistant(draft) and model.architecture != ASSISTED:
        raise error(f"it drafts for {ASSISTED}, the model is {model.architecture}")
    if (targets := TARGETS.get(draft.architecture)) and model.architecture not in targets:
        raise error(f"it drafts for {', '.join(targets)}; the model is {model.architecture}")
    if model.get(KIND) != draft.get(KIND):
        raise error(f"its {KIND} is {draft.get(KIND)!r}, the model's is {model.get(KIND)!r}")
    tokens, others = (one.get("tokenizer.ggml.tokens") or [] for one in (model, draft))
    if not isinstance(others, list):
        raise error("its tokens are no list")
    if why := _other_size(len(tokens), len(others)):
        raise error(why)
    if tokens[: len(others)] != others:
        at = next(i for i, (a, b) in enumerate(zip(tokens, others, strict=False)) if a != b)
        raise error(f"its token {at} is {others[at]!r}, the model's is {tokens[at]!r}")


def check_size(tokens: int, of_draft: int) -> None:
    """Raise WispError draft_mismatch if the draft model has more tokens than the model, or too few."""
    if why := _other_size(tokens, of_draft):
        raise _mismatch(why)


def _other_size(tokens: int, of_draft: int) -> str:
    """What is wrong with the draft model's number of tokens; "" if nothing is."""
    fits = 0 <= tokens - of_draft <= MOST_MORE
    return "" if fits else f"it has {of_draft} tokens, the model has {tokens}"


def _mismatch(what: str) -> WispError:
    return WispError(
        f"The draft model has another vocabulary than the model: {what}. {ADVICE}", "draft_mismatch", param=FIELD
    )
