"""What is malformed in videos of requests is named, before one is read."""

import base64
from typing import Any

import pytest

from app.openai.files import MAX_FILE
from app.openai.media import parts_of
from app.openai.video import MAX_REQUEST_FRAMES, MAX_VIDEOS
from app.openai.video_fields import MAX_FRAMES
from py_engine.errors import WispError
from tests.support.media import MEDIA
from tests.support.video_requests import DATA, URL, VIDEO, chat, frames_of, read


@pytest.mark.parametrize(
    ("part", "code", "param"),
    [
        ({"type": "input_video", "video_url": "file:///film"}, "invalid_value", ".video_url"),
        ({"type": "input_video", "video_url": URL, "fps": 0}, "invalid_value", ".fps"),
        ({"type": "input_video", "video_url": 5}, "invalid_type", ".video_url"),
        ({"type": "input_video", "video_url": {"url": URL}}, "invalid_type", ".video_url"),
        ({"type": "input_video", "input_video": {"url": URL}, "video_url": URL}, "invalid_value", ".video_url"),
        ({"type": "input_video", "data": DATA}, "unsupported_parameter", ".data"),
        ({"type": "video_url", "video_url": {}}, "invalid_value", ".video_url"),
        ({"type": "input_video", "video_url": URL, "frame_rate": 2}, "unsupported_parameter", ".frame_rate"),
        ({"type": "video_url", "video_url": {"url": URL}, "frame_rate": 2}, "unsupported_parameter", ".frame_rate"),
        ({"type": "video_url", "video_url": {"url": URL, "fps": 1}, "fps": 2}, "invalid_value", ".fps"),
        ({"type": "video_url", "video_url": URL, "fps": 2}, "invalid_type", ".video_url"),
        (
            {"type": "video_url", "video_url": {"url": URL}, "load_audio_from_video": True},
            "unsupported_parameter",
            ".load_audio_from_video",
        ),
    ],
)
def test_malformed_videos_of_responses_are_named(part: Any, code: str, param: str) -> None:
    with pytest.raises(WispError) as caught:
        read({"input": [{"role": "user", "content": [part]}]})
    assert (caught.value.code, caught.value.param) == (code, f"input[0].content[0]{param}")


@pytest.mark.parametrize(
    ("frames", "code", "param"),
    [
        ("x", "invalid_type", ""),
        ([], "invalid_type", ""),
        ([{"seconds": 0, "data": DATA}] * (MAX_FRAMES + 1), "invalid_value", ""),
        (["x"], "invalid_type", "[0]"),
        ([{"data": DATA}], "invalid_type", "[0].seconds"),
        ([{"seconds": "1", "data": DATA}], "invalid_type", "[0].seconds"),
        ([{"seconds": float("nan"), "data": DATA}], "invalid_value", "[0].seconds"),
        ([{"seconds": -1, "data": DATA}], "invalid_value", "[0].seconds"),
        ([{"seconds": 1}], "invalid_value", "[0]"),
        ([{"seconds": 1, "video_url": URL}], "unsupported_parameter", "[0].video_url"),
        ([{"second": 1, "data": DATA}], "unsupported_parameter", "[0].second"),
        ([{"seconds": 1, "data": DATA, "url": URL}], "invalid_value", "[0].url"),
        ([{"seconds": 5, "data": DATA}, {"seconds": 1, "data": DATA}], "invalid_value", "[1].seconds"),
        ([{"seconds": 1, "url": "file:///a"}], "invalid_value", "[0].url"),
        ([{"seconds": 1, "data": DATA}], "bad_media", "[0].data"),  # no picture
        ([{"seconds": 1, "data": base64.b64encode(b"RIFF0000WAVE").decode()}], "bad_media", "[0].data"),
    ],
)
def test_malformed_frames_are_named(frames: Any, code: str, param: str) -> None:
    with pytest.raises(WispError) as caught:
        read(chat({"type": "input_video", "input_video": {"frames": frames}}))
    assert (caught.value.code, caught.value.param) == (code, f"messages[0].content[0].input_video.frames{param}")


@pytest.mark.parametrize(
    ("given", "code", "param"),
    [
        ("film", "invalid_type", ""),
        ({}, "invalid_value", ""),
        ({"data": "??"}, "invalid_value", ".data"),
        ({"data": ""}, "invalid_value", ".data"),
        ({"url": "data:video/mp4,"}, "invalid_value", ".url"),
        ({"url": "file:///film"}, "invalid_value", ".url"),
        ({"data": DATA, "fps": 0}, "invalid_value", ".fps"),
        ({"data": DATA, "fps": float("nan")}, "invalid_value", ".fps"),
        ({"data": DATA, "fps": "1"}, "invalid_type", ".fps"),
        ({"data": DATA, "num_frames": MAX_FRAMES + 1}, "invalid_value", ".num_frames"),
        ({"data": DATA, "num_frames": 1.5}, "invalid_type", ".num_frames"),
        ({"data": DATA, "load_audio_from_video": 1}, "invalid_type", ".load_audio_from_video"),
        ({"frames": [{}], "load_audio_from_video": True}, "invalid_value", ".load_audio_from_video"),
        *(({"frames": [{}], name: given}, "invalid_value", f".{name}")
          for name, given in (("num_frames", 1), ("fps", 5), ("data", "!!!"), ("url", URL), ("video_url", URL))),
        ({"data": DATA, "video_url": URL}, "invalid_value", ".video_url"),
        ({"data": 5, "url": URL}, "invalid_type", ".data"),
        ({"data": DATA, "url": URL}, "invalid_value", ".url"),
        ({"url": 5}, "invalid_type", ".url"),
        ({"video_url": URL}, "invalid_value", ""),
        ({"data": DATA, "num_frame": 3}, "unsupported_parameter", ".num_frame"),
        ({"dat": DATA}, "unsupported_parameter", ".dat"),
    ],
)  # fmt: skip
def test_what_is_malformed_is_named(given: Any, code: str, param: str) -> None:
    with pytest.raises(WispError) as caught:
        read(chat({"type": "text", "text": "a"}, {"type": "input_video", "input_video": given}))
    assert (caught.value.code, caught.value.param) == (code, f"messages[0].content[1].input_video{param}")


@pytest.mark.parametrize(
    "given", [{"data": DATA, "fps": 0}, {}, {"data": base64.b64encode(bytes(MAX_FILE + 1)).decode()}]
)
def test_the_fields_of_all_videos_are_checked_before_one_is_read(given: Any) -> None:
    asked = list[Any]()
    with pytest.raises(WispError, match=r"content\[1\]"):
        read(chat(VIDEO, {"type": "input_video", "input_video": given}), asked=asked)
    assert not asked


def test_how_many_frames_a_request_may_have() -> None:
    """Those of all its videos together. They are counted before one is fetched."""
    square = base64.b64encode((MEDIA / "dot.png").read_bytes()).decode()
    video = frames_of(*[{"seconds": 1, "data": square}] * MAX_FRAMES)
    most, rest = divmod(MAX_REQUEST_FRAMES, MAX_FRAMES)
    assert rest == 0
    assert len(parts_of(read(chat(*[video] * most))["messages"])) == MAX_REQUEST_FRAMES
    for field in ("messages", "input"):
        said = [*[video] * most, frames_of({"seconds": 1, "url": "https://example.org/never.png"})]
        with pytest.raises(WispError, match="frames") as caught:
            read({field: [{"role": "user", "content": said}]})
        assert (caught.value.code, caught.value.param) == ("invalid_value", field)


def test_how_many_videos_a_request_may_have() -> None:
    read(chat(*[VIDEO] * MAX_VIDEOS))
    with pytest.raises(WispError, match="videos") as caught:
        read({"messages": [*chat(*[VIDEO] * MAX_VIDEOS)["messages"], *chat(VIDEO)["messages"]]})
    assert (caught.value.code, caught.value.param) == ("invalid_value", "messages")
    with pytest.raises(WispError, match="videos") as caught:
        read({"input": [{"role": "user", "content": [VIDEO] * (MAX_VIDEOS + 1)}]})
    assert (caught.value.code, caught.value.param) == ("invalid_value", "input")
