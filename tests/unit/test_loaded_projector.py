"""What a loaded projector keeps of the media that it has encoded."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.models import projector as module
from app.models.projector import LoadedProjector
from py_engine.media.chunks import MediaChunk
from py_engine.media.prepared import Medium
from py_engine.media.projector import Projector
from tests.support.media import golden, prepared

NAME, FILES = "gemma3", ("dot.png", "wide.png", "dot.png")


class CountingEncoder:
    """Returns how many chunks it has been given so far, in place of embeddings."""

    given = 0

    async def encode_chunks(self, chunks: Sequence[MediaChunk]) -> list[tuple[Any, tuple[int, int]]]:
        found = []
        for chunk in chunks:
            self.given += 1
            found.append((self.given, (chunk.n_tokens, 1)))
        return found


async def no_file(projector: Projector, data: bytes) -> Medium:
    raise AssertionError


def loaded(name: str = NAME) -> tuple[LoadedProjector, list[Medium]]:
    model = golden(name)
    one = LoadedProjector(model.projector, model.chunker(), CountingEncoder(), no_file, "")
    return one, [prepared(model.projector, file) for file in FILES]


@pytest.mark.parametrize("cache_bytes", [0, module.EMBEDDING_BYTES])
async def test_a_prompt_gets_all_embeddings_that_are_more_than_the_cache_holds(
    cache_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EMBEDDING_BYTES", cache_bytes)
    one, media = loaded()
    prompt = one.prompt("|" * len(media), media, "|")
    await one.encode(prompt.media)
    assert [medium.rows for medium in prompt.media] == [1, 2, 1]
    again = one.prompt("|", media[:1], "|")
    assert again.ids == prompt.ids[: len(again.ids)]
    assert again.media[0].rows == (1 if cache_bytes else None)


async def test_equal_pictures_with_numbers_are_different_tokens() -> None:
    """Their embeddings are computed once."""
    one, media = loaded("hunyuanvl")
    prompt = one.prompt("|" * len(media), media, "|")
    await one.encode(prompt.media)
    first, _, third = prompt.media
    assert (first.number, third.number) == (0, 2)
    assert not set(first.ids) & set(third.ids)
    assert first.rows == third.rows == 1
