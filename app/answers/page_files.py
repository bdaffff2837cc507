"""Replace files that only pages can read: PDF files by their texts, videos by pictures.

This happens before the request is checked; the check knows neither.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from app.answers.media import check_hears, vision_of
from app.models.loaded import Loaded
from app.openai.fields import Json
from app.openai.pdf import with_pdf_texts
from app.openai.video import with_frames, without_videos
from py_engine.generate.request_queue import Job
from py_engine.media.videos import Frame


class PageReader(Protocol):
    """What a page does for requests."""

    async def fetch_media(self, url: str) -> bytes:
        """The picture, sound or video at an address. WispError network_error, http_error."""

    async def read_pdf(self, data: bytes) -> str:
        """The text of a PDF file. ValueError with the reason where it cannot be read."""

    async def read_video(self, data: bytes, fps: float, most: int) -> list[Frame]:
        """`fps` pictures a second of a video, `most` at most, from equal parts of it. ValueError with the reason."""


async def with_files_read(
    body: Json,
    page: PageReader,
    job: Job,
    check: Callable[[Json], object],
    held: Callable[[], AbstractAsyncContextManager[Loaded]],
) -> Json:
    """A body with texts and pictures in place of its PDF files and videos. An abort ends the reading.

    Reading a video takes seconds, so the request's fields, and whether its model sees, and hears where it is to, are
    checked before it.
    `check`: raises WispError for a body whose fields are malformed; `held`: the model that the request names.
    """
    body = await job.run(with_pdf_texts(body, page.read_pdf))
    if (found := without_videos(body)) is None:
        return body
    check(found.body)
    async with held() as model:
        vision = vision_of(model, found.first)
        if found.heard:
            check_hears(model, found.heard)
    return await job.run(with_frames(body, page.fetch_media, page.read_video, vision))
