"""What media files are, from their first bytes; which are refused before anything is decoded."""

import contextlib
import io
import struct
import zlib
from typing import Any

import pytest
from PIL import Image

from py_engine.errors import WispError
from py_engine.media.formats import MAX_FILE, format_of, upright
from tests.support.media import MEDIA, pixels

SIZE = (31, 17)
PICTURES = ["PNG", "JPEG", "WEBP", "GIF", "BMP", "AVIF"]
ROTATED = Image.Exif()
ROTATED[0x0112] = 6  # orientation: turned by 90 degrees


def saved(format: str, **options: Any) -> bytes:
    out = io.BytesIO()
    Image.fromarray(pixels("wide.png")).resize(SIZE).save(out, format, **options)
    return out.getvalue()


@pytest.mark.parametrize("format", PICTURES)
def test_pictures_are_recognized_with_their_size(format: str) -> None:
    found = format_of(saved(format))
    assert (found.name.upper(), found.mime, found.size) == (format, f"image/{format.lower()}", SIZE)


@pytest.mark.parametrize("options", [{"lossless": True}, {"exif": ROTATED}])
def test_webp_has_its_size_in_three_places(options: dict[str, Any]) -> None:
    assert format_of(saved("WEBP", **options)).size == SIZE


@pytest.mark.parametrize(
    ("data", "name"),
    [
        ((MEDIA / "half.wav").read_bytes(), "WAV"),
        (b"ID3\4" + bytes(40), "MP3"),
        (b"\xff\xfb\x90\x44" + bytes(40), "MP3 or AAC"),
        (b"OggS" + bytes(40), "Ogg"),
        (b"fLaC" + bytes(40), "FLAC"),
        (b"\0\0\0\x20ftypM4A " + bytes(40), "MP4"),
        (b"\x1aE\xdf\xa3" + bytes(40), "WebM"),
    ],
)
def test_sound_is_recognized(data: bytes, name: str) -> None:
    found = format_of(data)
    assert found.name == name
    assert not found.is_picture


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP"])
def test_notes_of_rotation_are_removed(format: str) -> None:
    data = saved(format, exif=ROTATED)
    stored = upright(data, format_of(data))
    with Image.open(io.BytesIO(stored)) as image:
        assert image.size == SIZE
        assert image.tobytes() == Image.open(io.BytesIO(data)).tobytes()
        assert 0x0112 not in image.getexif() or format == "WEBP"  # WebP: the flag alone goes
    if format == "WEBP":
        assert data[20] & 8
        assert not stored[20] & 8


def png(width: int, height: int) -> bytes:
    """The beginning of a PNG that claims this size."""
    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(20)


@pytest.mark.parametrize("data", [png(10_000, 10_000), png(1, (1 << 31) - 1), gif(60_000, 60_000)])
def test_enormous_pictures_are_refused_by_their_header(data: bytes) -> None:
    with pytest.raises(WispError, match="at most 64 million") as error:
        format_of(data)
    assert error.value.code == "media_too_large"


def test_enormous_files_are_refused() -> None:
    with pytest.raises(WispError, match="at most 64 are allowed") as error:
        format_of(bytes(MAX_FILE + 1))
    assert error.value.code == "media_too_large"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "its format is not known"),
        (b"II*\0" + bytes(40), "its format is not known"),
        (png(10, 10)[:20], "it ends too early"),
        (png(0, 10), "0 x 10 pixels"),
        (saved("JPEG")[:60], "JPEG header is damaged"),
        (saved("WEBP")[:24], "it ends too early"),
        (b"\0\0\0\x20ftypavif" + bytes(40), "AVIF header is damaged"),
        (b"RIFF\0\0\0\0AVI " + bytes(40), "its format is not known"),
    ],
)
def test_damaged_and_unknown_files_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(WispError, match=message) as error:
        format_of(data)
    assert error.value.code == "bad_media"


def test_any_beginning_of_a_file_is_read_or_refused() -> None:
    for format in PICTURES:
        data = saved(format, exif=ROTATED) if format in ("PNG", "JPEG", "WEBP") else saved(format)
        for length in range(min(len(data), 400)):
            with contextlib.suppress(WispError):  # any other exception is a defect
                upright(data[:length], format_of(data[:length]))
