"""What a loaded projector keeps of the media that it has encoded."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.models import projector as module
from app.models.projector import LoadedProjector
from py_engine.errors import WispError
from py_engine.media.chunks import MediaChunk
from py_engine.media.prepared import Medium, Sound
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


async def test_a_pair_of_frames_is_prepared_once_and_encoded_once() -> None:
    """A video that is asked about again has the same frames."""
    model, asked = golden("qwen2vl"), list[bytes]()
    frames = {name.encode(): prepared(model.projector, name) for name in ("square.png",)}

    async def prepare(projector: Projector, data: bytes) -> Medium:
        asked.append(data)
        return frames[data]

    one = LoadedProjector(model.projector, model.chunker(), CountingEncoder(), prepare, "")
    for _ in range(2):
        pair = await one.prepared(b"square.png", b"square.png")
        still = await one.prepared(b"square.png")
        prompt = one.prompt("||", [pair, still], "|")
        await one.encode(prompt.media)
        assert [medium.rows for medium in prompt.media] == [1, 2]
    assert asked == [b"square.png"]
    assert [len(medium.ids) for medium in prompt.media] == [9, 9]


async def test_a_sound_is_no_frame() -> None:
    model, sound = golden("qwen2vl"), Sound(())

    async def prepare(projector: Projector, data: bytes) -> Medium:
        return sound if data == b"sound" else prepared(model.projector, "square.png")

    one = LoadedProjector(model.projector, model.chunker(), CountingEncoder(), prepare, "")
    for pair in ((b"sound", b"picture"), (b"picture", b"sound")):
        with pytest.raises(WispError) as caught:
            await one.prepared(*pair)
        assert caught.value.code == "bad_media"


async def test_equal_pictures_with_numbers_are_different_tokens() -> None:
    """Their embeddings are computed once."""
    one, media = loaded("hunyuanvl")
    prompt = one.prompt("|" * len(media), media, "|")
    await one.encode(prompt.media)
    first, _, third = prompt.media
    assert (first.number, third.number) == (0, 2)
    assert not set(first.ids) & set(third.ids)
    assert first.rows == third.rows == 1
