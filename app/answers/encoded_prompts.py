"""A prompt with media, and what the encoder computes of each (engine.encode and engine.evaluate of the SDK)."""

from array import array
from typing import Any

from app.answers.media import projector_of
from app.models.loaded import Loaded
from app.models.projector import ChunkedPrompt, PreparedMedia
from app.openai.messages import MARKER
from py_engine.generate.media import Media, PromptMedia
from py_engine.media.chunks import MediaChunk, TextChunk
from py_engine.media.prepared import Piece

PARAM = "media"


async def chunked(model: Loaded, text: str, files: list[bytes]) -> ChunkedPrompt:
    """A prompt that has MARKER once for each file. WispError for files that cannot be used."""
    projector = projector_of(model, PARAM)
    return projector.prompt(text, [await projector.prepared(data) for data in files], MARKER)


async def encode(model: Loaded, prompt: ChunkedPrompt) -> list[dict[str, Any]]:
    """The chunks in order, as plain objects and typed arrays (docs/sdk.md)."""
    await projector_of(model, PARAM).encode(prompt.media)
    media = iter(prompt.media)
    return [
        {"kind": "text", "ids": chunk.ids} if isinstance(chunk, TextChunk) else _encoded(chunk, next(media))
        for chunk in prompt.chunks
    ]


async def evaluate(model: Loaded, prompt: ChunkedPrompt, ids: list[int]) -> tuple[Any, tuple[int, int]]:
    """Logits as Engine.evaluate() returns them, of a prompt and the ids that follow it."""
    media = PromptMedia(prompt.media, projector_of(model, PARAM).encode)
    found: tuple[Any, tuple[int, int]] = await model.engine_or_error().evaluate(prompt.ids, media, ids)
    return found


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
        return found | {"pixels": chunk.part.pixels, "pixelsShape": list(chunk.part.shape)}
    return found | {"mel": chunk.part.mel, "melShape": list(chunk.part.mel.shape)}
