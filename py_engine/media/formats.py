"""What a media file is, from its first bytes, and whether it may be decoded: nothing is decoded for that."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from py_engine.errors import WispError
from py_engine.media.sizes import Size

MAX_FILE = 64 * 1024 * 1024  # bytes
MAX_PIXELS = 64 * 1000 * 1000  # of a decoded picture: about 500 MB while it is decoded and resized
MAX_SECONDS = 30 * 60  # of a clip
SHOWN = "PNG, JPEG, WebP, GIF, BMP and AVIF"
HEARD = "WAV, MP3, Ogg, Opus, FLAC, AAC and WebM"


@dataclass(frozen=True)
class Format:
    """A file's format. `size`: of a picture; None for sound."""

    name: str
    mime: str
    size: Size | None = None

    @property
    def is_picture(self) -> bool:
        return self.size is not None


def format_of(data: bytes) -> Format:
    """Recognize a file and check it against the limits. WispError bad_media, media_too_large."""
    if len(data) > MAX_FILE:
        raise WispError(
            f"The file has {len(data) >> 20} MiB; at most {MAX_FILE >> 20} are allowed. Send a smaller one.",
            "media_too_large",
        )
    found = _format(data)
    if found.size is not None:
        width, height = found.size
        if width * height == 0:
            raise bad_media(f"the {found.name} picture has {width} x {height} pixels")
        if width * height > MAX_PIXELS:
            raise WispError(
                f"The picture has {width} x {height} pixels; at most {MAX_PIXELS // 10**6} million are allowed. "
                "Send a smaller one.",
                "media_too_large",
            )
    return found


def bad_media(why: str) -> WispError:
    """The error for a file that cannot be used."""
    return WispError(
        f"The file cannot be used: {why}. Pictures may be {SHOWN}; sound may be {HEARD}.", "bad_media", param="media"
    )


def upright(data: bytes, found: Format) -> bytes:
    """The file without the note that it is to be shown rotated: models take the pixels as they are stored."""
    if found.name == "JPEG":
        return _without(data, [(at, end) for at, end, kind in _segments(data) if kind == 0xE1])
    if found.name == "PNG":
        return _without(data, [(at, end) for at, end, kind in _png_chunks(data) if kind == b"eXIf"])
    if found.name == "WebP" and data[12:16] == b"VP8X":
        return data[:20] + bytes([data[20] & ~0x08]) + data[21:]  # the flag of an EXIF chunk
    return data


def _without(data: bytes, ranges: list[tuple[int, int]]) -> bytes:
    out, begin = [], 0
    for at, end in ranges:
        out.append(data[begin:at])
        begin = end
    return b"".join([*out, data[begin:]])


def _format(data: bytes) -> Format:
    if not data:
        raise bad_media("it is empty")
    try:
        for begins, read in _READERS:
            if data.startswith(begins) and (found := read(data)):
                return found
    except (struct.error, IndexError):
        raise bad_media("it ends too early") from None
    raise bad_media("its format is not known")


def _png(data: bytes) -> Format:
    if data[12:16] != b"IHDR":
        raise bad_media("its PNG header is damaged")
    width, height = struct.unpack_from(">II", data, 16)
    return Format("PNG", "image/png", (width, height))


def _png_chunks(data: bytes) -> list[tuple[int, int, bytes]]:
    """(begin, end, type) of a PNG's chunks before its pixels."""
    found, at = [], 8
    while at + 12 <= len(data) and data[at + 4 : at + 8] != b"IDAT":
        end = at + 12 + int(struct.unpack_from(">I", data, at)[0])
        found.append((at, end, data[at + 4 : at + 8]))
        at = end
    return found


def _jpeg(data: bytes) -> Format:
    for at, _, kind in _segments(data):
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):  # start of a frame
            height, width = struct.unpack_from(">HH", data, at + 5)
            return Format("JPEG", "image/jpeg", (width, height))
    raise bad_media("its JPEG header is damaged")


def _segments(data: bytes) -> list[tuple[int, int, int]]:
    """(begin, end, marker) of a JPEG's segments up to its pixels."""
    found, at = [], 2
    while at + 4 <= len(data) and data[at] == 0xFF:
        kind = data[at + 1]
        if kind == 0xFF:  # padding
            at += 1
            continue
        if kind == 0xDA:
            break
        end = at + 2 + int(struct.unpack_from(">H", data, at + 2)[0])
        found.append((at, end, kind))
        at = end
    return found


def _gif(data: bytes) -> Format:
    width, height = struct.unpack_from("<HH", data, 6)
    return Format("GIF", "image/gif", (width, height))


def _bmp(data: bytes) -> Format:
    width, height = struct.unpack_from("<ii", data, 18)
    return Format("BMP", "image/bmp", (abs(width), abs(height)))


def _riff(data: bytes) -> Format | None:
    if data[8:12] == b"WAVE":
        return Format("WAV", "audio/wav")
    return _webp(data) if data[8:12] == b"WEBP" else None


def _webp(data: bytes) -> Format:
    kind = data[12:16]
    if kind == b"VP8X":
        low_w, high_w, low_h, high_h = struct.unpack_from("<HBHB", data, 24)
        width, height = 1 + low_w + (high_w << 16), 1 + low_h + (high_h << 16)
    elif kind == b"VP8L":
        bits = int(struct.unpack_from("<I", data, 21)[0])
        width, height = 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    elif kind == b"VP8 ":
        width, height = (side & 0x3FFF for side in struct.unpack_from("<HH", data, 26))
    else:
        raise bad_media("its WebP header is damaged")
    return Format("WebP", "image/webp", (width, height))


def _iso(data: bytes) -> Format | None:
    """Files of ISO's base format: AVIF pictures, and sound in MP4."""
    if data[4:8] != b"ftyp":
        return None
    if data[8:12] in (b"avif", b"avis"):
        sizes, at = [], data.find(b"ispe", 0, 1 << 16)
        while at >= 0:
            sizes.append(struct.unpack_from(">II", data, at + 8))
            at = data.find(b"ispe", at + 4, 1 << 16)
        if not sizes:
            raise bad_media("its AVIF header is damaged")
        width, height = max(sizes, key=lambda size: int(size[0] * size[1]))
        return Format("AVIF", "image/avif", (width, height))
    return Format("MP4", "audio/mp4")


def _mpeg(data: bytes) -> Format | None:
    """A frame of MP3 or AAC without a container."""
    return Format("MP3 or AAC", "audio/mpeg") if data[1] & 0xE0 == 0xE0 else None


def _sound(name: str, mime: str) -> Callable[[bytes], Format]:
    return lambda data: Format(name, mime)


_READERS: tuple[tuple[bytes, Callable[[bytes], Format | None]], ...] = (
    (b"\x89PNG\r\n\x1a\n", _png),
    (b"\xff\xd8\xff", _jpeg),
    (b"RIFF", _riff),
    (b"GIF8", _gif),
    (b"BM", _bmp),
    (b"OggS", _sound("Ogg", "audio/ogg")),
    (b"fLaC", _sound("FLAC", "audio/flac")),
    (b"ID3", _sound("MP3", "audio/mpeg")),
    (b"\x1aE\xdf\xa3", _sound("WebM", "audio/webm")),
    (b"\xff", _mpeg),
    (b"", _iso),
)
