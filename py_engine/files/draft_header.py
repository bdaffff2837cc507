"""The header of a draft model, which is loaded beside the model that it drafts for.

Its tensors get names that begin with DRAFT, unlike the model's. Both must have the same vocabulary, because the draft's
tokens go to the model as they are. Only the model may have more tokens at the end: larger models of a family often have
more rows for padding.
"""

from __future__ import annotations

from dataclasses import replace

from py_engine.errors import WispError
from py_engine.files.gguf_header import Header

ASSISTANT = "gemma4-assistant"  # drafts from the model's hidden states and caches (models/gemma4_assistant.py)
ASSISTED = "gemma4"  # the architecture that assistants draft for
DRAFT = "draft."  # what the names of a draft model's tensors begin with, and of its weights, buffers and lists
KIND = "tokenizer.ggml.model"
MOST_MORE = 128  # tokens that the model may have at the end, as in llama.cpp
ADVICE = "Give a smaller model of the same family, or load without draft."


def is_assistant(header: Header) -> bool:
    """Whether a draft model is an assistant of its model: it has no caches and runs with no other."""
    return header.architecture == ASSISTANT


def unfit_assistant(why: str) -> WispError:
    """The error for an assistant that another model than this was made for."""
    return WispError(
        f"This assistant does not fit the model: {why}. Give the assistant of this model, or load without draft.",
        "draft_mismatch",
        param="draft",
    )


def prefixed(header: Header) -> Header:
    """The header of a draft model's file with its tensors' names prefixed."""
    tensors = {DRAFT + name: replace(info, name=DRAFT + name) for name, info in header.tensors.items()}
    return replace(header, tensors=tensors)


def check_draft(model: Header, draft: Header) -> None:
    """Raise WispError draft_mismatch if the draft model's vocabulary differs, or if an assistant's model does."""
    unfit = unfit_assistant if is_assistant(draft) else _mismatch
    if is_assistant(draft) and model.architecture != ASSISTED:
        raise unfit(f"it drafts for {ASSISTED}, the model is {model.architecture}")
    if model.get(KIND) != draft.get(KIND):
        raise unfit(f"its {KIND} is {draft.get(KIND)!r}, the model's is {model.get(KIND)!r}")
    tokens, others = (one.get("tokenizer.ggml.tokens") or [] for one in (model, draft))
    if not isinstance(others, list):
        raise unfit("its tokens are no list")
    if why := _other_size(len(tokens), len(others)):
        raise unfit(why)
    if tokens[: len(others)] != others:
        at = next(i for i, (a, b) in enumerate(zip(tokens, others, strict=False)) if a != b)
        raise unfit(f"its token {at} is {others[at]!r}, the model's is {tokens[at]!r}")


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
        f"The draft model has another vocabulary than the model: {what}. {ADVICE}", "draft_mismatch", param="draft"
    )
