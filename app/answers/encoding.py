"""The chunks of a prompt with media, with what the encoder computes of each (engine.encode of the SDK)."""

from array import array
from dataclasses import dataclass
from typing import Any

from app.answers.media import projector_of
from app.models.loaded import Loaded
from app.models.projector import PreparedMedia
from py_engine.generate.media import Media, PromptMedia
from py_engine.media.chunks import Chunk, MediaChunk, TextChunk
from py_engine.media.prepared import Piece


@dataclass
class EncodedPrompt:
    """A prompt's chunks, and its ids with those that stand for media."""

    model: Loaded
    chunks: list[Chunk]
    ids: list[int]
    media: PromptMedia
    all_media: list[Media]


async def chunks_of(model: Loaded, text: str, files: list[bytes]) -> EncodedPrompt:
    """The chunks of a prompt with the marker once for each file. WispError for files that cannot be used."""
    projector = projector_of(model, "media")
    chunks = projector.chunks(text, [await projector.prepared(data) for data in files])
    ids: list[int] = []
    media: list[Media] = []
    for chunk in chunks:
        if isinstance(chunk, TextChunk):
            ids += chunk.ids
        else:
            media.append(projector.media_of(chunk))
            ids += media[-1].ids
    return EncodedPrompt(model, chunks, ids, PromptMedia(media, projector.encode), media)


async def encode(prompt: EncodedPrompt) -> list[dict[str, Any]]:
    """The chunks in order, as plain objects and typed arrays (docs/sdk.md)."""
    await projector_of(prompt.model, "media").encode(prompt.all_media)
    media = iter(prompt.all_media)
    return [
        {"kind": "text", "ids": chunk.ids} if isinstance(chunk, TextChunk) else _encoded(chunk, next(media))
        for chunk in prompt.chunks
    ]


def _encoded(chunk: MediaChunk, media: Media) -> dict[str, Any]:
    assert isinstance(media, PreparedMedia)
    width = chunk.projector.n_embd_inp
    found: dict[str, Any] = {
        "kind": chunk.kind,
        "embedding": media.rows,
        "shape": [chunk.n_tokens, width],
        "grid": list(chunk.grid),
        "positions": array("i", (n for place in chunk.positions() for n in place)) if chunk.mrope else None,
    }
    if isinstance(chunk.part, Piece):
        across, down = chunk.part.size
        return found | {"pixels": chunk.part.pixels, "pixelsShape": [down, across, 3]}
    return found | {"mel": chunk.part.mel, "melShape": list(chunk.part.mel.shape)}
