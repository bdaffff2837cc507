"""Replace files that only pages can read: PDF files by their texts, videos by pictures.

This happens before the request is checked; the check knows neither.
"""

from typing import Protocol

from app.openai.fields import Json
from app.openai.pdf import with_pdf_texts
from app.openai.video import Frame, with_frames


class PageReader(Protocol):
    """What a page does for requests."""

    async def fetch_media(self, url: str) -> bytes:
        """The picture, sound or video at an address."""

    async def read_pdf(self, data: bytes) -> str:
        """The text of a PDF file. ValueError with the reason where it cannot be read."""

    async def read_video(self, data: bytes, fps: float, most: int) -> list[Frame]:
        """`fps` pictures a second of a video, `most` at most, from equal parts of it. ValueError with the reason."""


async def with_files_read(body: Json, page: PageReader) -> Json:
    """A request's body with texts and pictures in place of its PDF files and videos."""
    return await with_frames(await with_pdf_texts(body, page.read_pdf), page.fetch_media, page.read_video)
