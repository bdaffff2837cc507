"""Prompts of pieces: texts, token ids, and rows of numbers that the model reads in place of tokens.

Only callers in the same Python have such prompts; requests by message have none.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from app.models.loaded import Loaded
from py_engine.errors import WispError
from py_engine.generate.media import Media, PromptMedia, media_ids


@dataclass(frozen=True)
class PromptEmbeddings:
    """What the model's first layer is to read of `count` tokens.

    `values`: float32 (count, width) as the runner takes them: a Float32Array, or a numpy array. `content`: their bytes.
    """

    count: int
    width: int
    values: Any = field(repr=False)
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class PromptPieces:
    """A prompt. Control tokens in its texts are read as such; a text that comes first gets BOS as prompts do."""

    pieces: Sequence[str | list[int] | PromptEmbeddings]


def encode(model: Loaded, prompt: PromptPieces) -> tuple[list[int], PromptMedia]:
    """The ids of a prompt, and the rows for those that are of none of its tokens."""
    ids: list[int] = []
    media: list[Media] = []
    for i, piece in enumerate(prompt.pieces):
        if isinstance(piece, PromptEmbeddings):
            media.append(_medium(model, piece))
            ids += media[-1].ids
        elif isinstance(piece, str):
            tokenizer = model.tokenizer
            ids += tokenizer.encode_prompt(piece) if i == 0 else tokenizer.encode(piece, False, True)
        else:
            model.check_ids(piece, "prompt")
            ids += piece
    if prompt.pieces and isinstance(prompt.pieces[-1], str):
        ids = model.ended(ids)
    if not ids:
        raise WispError("The prompt is empty.", "invalid_value", param="prompt")
    return ids, PromptMedia(media)


def _medium(model: Loaded, rows: PromptEmbeddings) -> Media:
    engine = model.engine_or_error()
    engine.check_accepts_embeddings()
    if rows.width != engine.plan.media_width:
        what = f"The embeddings have {rows.width} values each; this model reads {engine.plan.media_width}."
        raise WispError(what, "invalid_value", param="embeddings")
    content = f"rows {hashlib.sha256(rows.content).hexdigest()}"
    return Media(media_ids(content, rows.count), rows.values, as_text=True)
