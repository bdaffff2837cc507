"""The fields of a video: its file or address, or frames that were taken from it; and how these are read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.openai.fields import Json, boolean, integer, number, unsupported, wrong_type, wrong_value
from app.openai.files import MAX_FILE
from app.openai.media import DATA, MediaPart, at_address, from_base64
from py_engine.errors import WispError
from py_engine.media.formats import MAX_SECONDS, format_of
from py_engine.media.videos import Frame

FPS, NUM_FRAMES = 1.0, 16  # vLLM's names
MAX_FRAMES = 128  # of a video
INSIDE = ("data", "url")  # the fields that may have a file; beside a part's type, video_url has it
_FILES = (*INSIDE, "video_url")
HEARS = "load_audio_from_video"  # transformers' name
PACE = ("fps", "num_frames")  # which some clients put beside the address
_OTHERS = (*PACE, HEARS, "frames")
_WITHOUT_EFFECT = ("detail",)  # as of pictures
FIELDS = (*_FILES, *_OTHERS)
_FRAME = (*INSIDE, "seconds")

ReadVideo = Callable[[bytes, float, int], Awaitable[list[Frame]]]
Fetch = Callable[[str], Awaitable[bytes]]


@dataclass(frozen=True)
class Video:
    """Checked fields: a video's file or address, pictures a second, and the most pictures. Or frames with their times.

    `path`: of the fields, for errors. `hears`: its sound follows the pictures.
    """

    path: str
    source: MediaPart
    fps: float
    most: int
    frames: tuple[tuple[float, MediaPart], ...] = ()
    hears: bool = False

    async def read(self, fetch: Fetch, read: ReadVideo) -> tuple[list[Frame], bytes]:
        """The frames, and the file that has the sound, b"" if it is not to be heard.

        WispError bad_media, media_too_large, or of `fetch`.
        """
        if self.frames:
            return [(seconds, await _picture(part, fetch)) for seconds, part in self.frames], b""
        data = self.source.data or await fetch(self.source.address)
        _check_size(data, self.path)
        try:
            return await read(data, self.fps, self.most), data if self.hears else b""
        except ValueError as error:
            what = f"{self.path} is a video that cannot be used: {error}."
            raise WispError(what, "bad_media", param=self.path) from None


def checked(given: Json, path: str, files: tuple[str, ...] = INSIDE) -> Video:
    """Check the fields of a video. WispError names the one that is wrong. `files`: those that may have the file."""
    if not isinstance(given, dict):
        raise wrong_type(path, "an object", given)
    others = {name: given[name] for name in given if name not in (*_FILES, *_WITHOUT_EFFECT)}
    _check_names(others, path, (*files, *_OTHERS), "a video")
    fps = _number(given, "fps", path, 0.01, 60.0, FPS)
    try:
        most = integer(given, "num_frames", 1, MAX_FRAMES) or NUM_FRAMES
    except WispError as error:
        raise _below(error, path) from None
    hears = boolean(given, HEARS, param=f"{path}.{HEARS}")
    if given.get("frames") is not None:
        if hears:
            raise wrong_value(f"{path}.{HEARS} needs the video's file: frames have no sound.", f"{path}.{HEARS}")
        if beside := next((name for name in (*_FILES, "fps", "num_frames") if given.get(name) is not None), None):
            raise wrong_value(
                f"{path}.{beside} describes a video's file; give either it or frames.",
                f"{path}.{beside}",
            )
        return Video(path, MediaPart(path), fps, most, _frames(given["frames"], f"{path}.frames"))
    source = _source(given, path, files, "the file")
    if second := next((name for name in _FILES if name not in files and given.get(name) is not None), None):
        second = f"{path}.{second}"
        raise wrong_value(f"{source.path} and {second} exclude each other; give only one.", second)
    _check_size(source.data, path)
    return Video(path, source, fps, most, hears=hears)


def _frames(given: Json, path: str) -> tuple[tuple[float, MediaPart], ...]:
    if not isinstance(given, list) or not given:
        raise wrong_type(path, "a list of frames", given)
    if len(given) > MAX_FRAMES:
        raise wrong_value(f"{path} has {len(given)} frames; at most {MAX_FRAMES} are allowed.", path)
    found: list[tuple[float, MediaPart]] = []
    for i, frame in enumerate(given):
        where = f"{path}[{i}]"
        if not isinstance(frame, dict):
            raise wrong_type(where, "an object", frame)
        _check_names(frame, where, _FRAME, "a frame")
        seconds = _number(frame, "seconds", where, 0.0, MAX_SECONDS * 100, -1.0)
        if seconds < 0:
            raise wrong_type(f"{where}.seconds", "a number", None)
        if found and seconds < found[-1][0]:
            raise wrong_value(
                f"{where}.seconds is {seconds}, earlier than the frame before; order frames by their times.",
                f"{where}.seconds",
            )
        found.append((seconds, _source(frame, where, INSIDE, "a picture's file")))
    return tuple(found)


def _check_names(given: dict[str, Json], path: str, known: tuple[str, ...], what: str) -> None:
    """Refuse fields that nothing would read, such as misspelt ones. WispError unsupported_parameter."""
    if unknown := next((name for name, value in given.items() if name not in known and value is not None), None):
        message = f"{path}.{unknown} is not a field of {what}; there are {', '.join(known)}."
        raise unsupported(message, f"{path}.{unknown}")


def _number(given: dict[str, Json], name: str, path: str, low: float, high: float, default: float) -> float:
    try:
        return number(given, name, low, high, default)
    except WispError as error:
        raise _below(error, path) from None


def _below(error: WispError, path: str) -> WispError:
    """The error of a field of what is at `path`."""
    return error.reworded(f"{path}.{error.message}", f"{path}.{error.param}")


async def _picture(part: MediaPart, fetch: Fetch) -> bytes:
    """The file of a frame that came with the request. WispError bad_media for what is no picture."""
    data = part.data or await fetch(part.address)
    try:
        found = format_of(data)
    except WispError as error:
        raise error.reworded(error.message, part.path) from None
    if not found.is_picture:
        raise WispError(f"{part.path} is a {found.name} file; frames are pictures.", "bad_media", param=part.path)
    return data


def _check_size(data: bytes, path: str) -> None:
    if len(data) > MAX_FILE:
        message = f"{path} has {len(data) >> 20} MiB; at most {MAX_FILE >> 20} are allowed. Send a shorter video."
        raise WispError(message, "media_too_large", param=path)


def _source(given: dict[str, Json], path: str, fields: tuple[str, ...], what: str) -> MediaPart:
    """The bytes of a file, or its address, from the one of the fields that is there. `what`: the file, for errors."""
    found = [field for field in fields if given.get(field) is not None]
    if not found:
        raise wrong_value(f"{path} needs data, {what} in Base64, or url, its address.", path)
    for field in found:
        if not isinstance(given[field], str):
            raise wrong_type(f"{path}.{field}", "a string", given[field])
    value, where = given[found[0]], f"{path}.{found[0]}"
    if len(found) > 1:
        raise wrong_value(f"{where} and {path}.{found[1]} exclude each other; give only one.", f"{path}.{found[1]}")
    raw = found[0] == "data" and not DATA.match(value)
    return MediaPart(where, data=from_base64(value, where)) if raw else at_address(value, where)
