"""Videos in chats: pictures and their times take their place before a request is checked."""

import base64
import struct
from typing import Any
from unittest.mock import Mock

import pytest

from app.openai.media import MediaPart, parts_of
from app.openai.requests import chat_request
from app.openai.responses import responses_request
from app.openai.video import MAX_VIDEOS
from py_engine.errors import WispError
from py_engine.media.formats import format_of
from py_engine.media.projector import Projector
from tests.support.media import MEDIA
from tests.support.video_requests import DATA, FRAMES, HEARD, SILENT, URL, VIDEO, chat, frames_of, read
from tests.support.worker_page import Page


@pytest.mark.parametrize(
    "part",
    [
        VIDEO,
        {"type": "input_video", "input_video": {"data": f"data:video/webm;base64,{DATA}"}},
        {"type": "input_video", "input_video": {"url": "https://example.org/film.webm"}},
        {"type": "video_url", "video_url": {"url": f"data:video/webm;base64,{DATA}"}},
    ],
)
def test_a_video_is_read_as_pictures_with_their_times(part: Any) -> None:
    body, asked = chat({"type": "text", "text": "What moves?"}, part, {"type": "text", "text": "Why?"}), list[Any]()
    request = chat_request(read(body, asked=asked))
    content = request.messages[0]["content"]
    texts = [each.get("text") for each in content]
    assert texts == ["What moves?", "[0m0.50s]", None, "[1m0.00s]", None, "[1m1.25s]", None, "Why?"]
    assert [each.data for each in parts_of(request.messages)] == [b"one", b"two", b"three"]
    assert asked == [(1.0, 16)]
    assert body["messages"][0]["content"][1] == part  # the caller's stays


@pytest.mark.parametrize(
    ("part", "asked"),
    [
        (VIDEO, (1.0, 16)),
        ({"type": "input_video", "video_url": URL}, (1.0, 16)),
        ({"type": "input_video", "video_url": URL, "fps": 2, "num_frames": 5}, (2.0, 5)),
        ({"type": "video_url", "video_url": {"url": URL, "fps": 2}}, (2.0, 16)),
        (
            {"type": "video_url", "video_url": {"url": URL, "detail": "low", "fps": None}, "fps": 2, "num_frames": 3},
            (2.0, 3),
        ),
    ],
)
def test_a_response_reads_videos(part: Any, asked: Any) -> None:
    called, call = list[Any](), {"call_id": "c", "name": "see", "arguments": "{}", "type": "function_call"}
    said = {"role": "user", "content": [{"type": "input_text", "text": "What moves?"}, part]}
    result = {"type": "function_call_output", "call_id": "c", "output": [part]}
    request: Any = responses_request(read({"input": [said, call, result]}, asked=called)).request
    frames = ["[0m0.50s]", None, "[1m0.00s]", None, "[1m1.25s]", None]
    texts = [[part.get("text") for part in message["content"] or ()] for message in request.messages]
    assert texts == [["What moves?", *frames], [], frames]
    assert [each.data for each in parts_of(request.messages)] == [b"one", b"two", b"three"] * 2
    assert called == [asked] * 2


@pytest.mark.parametrize("item", [{"role": "assistant", "content": [VIDEO]}, {"role": "system", "content": [VIDEO]}])
def test_only_users_and_functions_of_responses_send_videos(item: Any) -> None:
    body = {"input": [item, {"role": "user", "content": "Hi"}]}
    assert read(body) == body
    with pytest.raises(WispError, match="a video") as caught:
        responses_request(body)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "input[0].content[0]")


def test_two_frames_of_equal_size_are_a_picture_for_models_that_read_pairs() -> None:
    """Its time is between theirs. A frame of another size, or the last one, is a picture."""
    square, wide = ((MEDIA / name).read_bytes() for name in ("square.png", "wide.png"))
    frames = [(0.5, square), (1.5, square), (2.5, wide), (3.5, square), (4.5, square), (5.5, wide)]
    body = read(chat(VIDEO), frames, model="qwen2vl")
    given = [(part.data, part.second) for part in parts_of(body["messages"])]
    assert given == [(square, square), (wide, b""), (square, square), (wide, b"")]
    texts = [part["text"] for part in body["messages"][0]["content"] if part["type"] == "text"]
    assert texts == ["[0m1.00s]", "[0m2.50s]", "[0m4.00s]", "[0m5.50s]"]
    assert [part.second for part in parts_of(read(chat(VIDEO), frames)["messages"])] == [b""] * 6


@pytest.mark.parametrize(
    ("model", "texts"),
    [
        ("gemma3", ["[0m0.50s]", "[1m0.00s]", "[1m1.25s]"]),
        ("gemma4", ["00:00 ", " 00:59 ", " 01:01 "]),
        ("idefics3", ["\nFrame from 00:00:", "\nFrame from 00:59:", "\nFrame from 01:01:"]),
        ("minimax_m3", ["]<]0.5 seconds[>[", "]<]60.0 seconds[>[", "]<]61.2 seconds[>["]),
    ],
)
def test_times_are_written_as_the_models_family_reads_them(model: str, texts: list[str]) -> None:
    content = read(chat(VIDEO), model=model)["messages"][0]["content"]
    assert [part.get("text") for part in content] == [text for time in texts for text in (time, None)]


def test_qwen3_vl_reads_the_mean_time_of_a_pair() -> None:
    square = (MEDIA / "square.png").read_bytes()
    frames = [(seconds, square) for seconds in (0.5, 1.5, 62.0)]
    content = read(chat(VIDEO), frames, model="qwen3vl")["messages"][0]["content"]
    assert [part["text"] for part in content if part["type"] == "text"] == ["<1.0 seconds>", "<62.0 seconds>"]


def test_frames_may_take_the_place_of_a_file() -> None:
    """Nothing is decoded, so there may be more such videos than others."""
    square = (MEDIA / "square.png").read_bytes()
    data = base64.b64encode(square).decode()
    frames = {"seconds": 1, "data": data}, {"seconds": 2.5, "url": f"data:image/png;base64,{data}"}
    asked = list[Any]()
    body = read(chat(*[frames_of(*frames)] * (MAX_VIDEOS + 1), VIDEO), asked=asked)
    content = body["messages"][0]["content"]
    assert [part.get("text") for part in content[:4]] == ["[0m1.00s]", None, "[0m2.50s]", None]
    assert [part.data for part in parts_of(body["messages"])] == [square] * 10 + [data for _, data in FRAMES]
    assert asked == [(1.0, 16)]


@pytest.mark.parametrize("field", ["messages", "input"])
def test_the_sound_of_a_video_follows_its_pictures_where_it_is_asked_for(field: str) -> None:
    body = read({field: [{"role": "user", "content": [HEARD, {"type": "input_text", "text": "Who speaks?"}]}]})
    kinds = [part["type"] for part in body[field][0]["content"]]
    assert kinds == [*["text", "image_url"] * 3, "input_audio", "input_text"]
    if field == "input":
        request: Any = responses_request(body).request
        sound = parts_of(request.messages)[-1]
        assert sound == MediaPart("input[0].content[0].input_video", data=b"film")


def test_frames_that_a_decoder_may_turn_are_pictures_by_themselves() -> None:
    """An AVIF file of the same size may have its picture turned, so that the two would be no pair."""
    square = (MEDIA / "square.png").read_bytes()
    size = format_of(square).size
    assert size is not None
    avif = b"\0\0\0\x20ftypavif" + bytes(20) + b"ispe" + struct.pack(">III", 0, *size)
    assert format_of(avif).size == size
    frames = [(float(i), data) for i, data in enumerate((avif, avif, square, avif, square, square))]
    body = read(chat(VIDEO), frames, model="qwen2vl")
    assert [bool(part.second) for part in parts_of(body["messages"])] == [False] * 4 + [True]


def test_a_frame_that_is_no_picture_is_an_error() -> None:
    with pytest.raises(WispError) as caught:
        read(chat(VIDEO), model="qwen2vl")
    assert (caught.value.code, caught.value.param) == ("bad_media", "messages[0].content[0].input_video")


def test_how_many_pictures_are_taken() -> None:
    asked = list[Any]()
    read(chat({"type": "input_video", "input_video": {"data": DATA, "fps": 0.5, "num_frames": 3}}), asked=asked)
    assert asked == [(0.5, 3)]


def test_a_video_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(WispError, match="it has no pictures") as caught:
        read(chat(VIDEO), ValueError("it has no pictures"))
    assert (caught.value.code, caught.value.param) == ("bad_media", "messages[0].content[0].input_video")


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_only_users_and_tools_send_videos(role: str) -> None:
    body = chat(VIDEO, role=role)
    assert read(body) == body
    with pytest.raises(WispError) as caught:
        chat_request(body)
    assert (caught.value.code, caught.value.param) == ("unsupported_parameter", "messages[0].content[0]")


@pytest.mark.parametrize(
    "body",
    [
        *(None, [], {}, {"messages": 1}, {"messages": [1, {"content": 1}, {"content": [1]}]}),
        *({"input": "a"}, {"input": [1, {"content": 1}, {"role": "user", "content": [1]}, {"type": [], "role": []}]}),
    ],
)
def test_other_malformed_fields_stay(body: Any) -> None:
    assert read(body) == body


@pytest.mark.parametrize("kind", ["chat.completions", "chat.completions.countTokens", "countTokens"])
@pytest.mark.parametrize(
    ("more", "projector", "code", "param"),
    [
        ({}, None, "no_projector", "messages[0].content[0].input_video"),
        ({}, Projector(Mock(), None, Mock()), "no_projector", "messages[0].content[0].input_video"),
        (chat(VIDEO, HEARD), Projector(Mock(), Mock(), None), "no_projector", "messages[0].content[1].input_video"),
        (
            chat(SILENT),
            Projector(Mock(), Mock(), None),
            "invalid_value",
            "messages[0].content[0].input_video.load_audio_from_video",
        ),
        ({"model": "none"}, None, "model_not_found", "model"),
        ({"temperature": "x"}, None, "invalid_type", "temperature"),
        ({"messages": [*chat(VIDEO)["messages"], {"role": "user"}]}, None, "invalid_type", "messages[1].content"),
        (
            {"messages": [*chat(VIDEO, role="system")["messages"], *chat(VIDEO)["messages"]]},
            None,
            "unsupported_parameter",
            "messages[0].content[0]",
        ),
    ],
)
async def test_a_request_that_is_refused_reads_no_video(
    kind: str, more: dict[str, Any], projector: Any, code: str, param: str
) -> None:
    """A page takes seconds to decode one. This test's page fails if it is asked to."""
    page = Page()
    await page.call("load")
    model = page.worker._models.loaded["mini"]
    model.projector = None if projector is None else Mock(projector=projector)
    error = (await page.call(kind, request=chat(VIDEO) | more))["error"]
    assert (error["code"], error["param"]) == (code, param)


@pytest.mark.parametrize("kind", ["responses", "responses.inputTokens.count"])
@pytest.mark.parametrize(
    ("more", "projector", "code", "param"),
    [
        ({}, None, "no_projector", "input[0].content[0].input_video"),
        ({}, Projector(Mock(), Mock(), None), "no_projector", "input[0].content[1].input_video"),
        ({"temperature": "x"}, None, "invalid_type", "temperature"),
    ],
)
async def test_a_response_that_is_refused_reads_no_video(
    kind: str, more: dict[str, Any], projector: Any, code: str, param: str
) -> None:
    """Neither one that is to be seen nor one that is also to be heard."""
    page = Page()
    await page.call("load")
    page.worker._models.loaded["mini"].projector = None if projector is None else Mock(projector=projector)
    request = {"input": [{"role": "user", "content": [VIDEO, HEARD]}]}
    error = (await page.call(kind, request=request | more))["error"]
    assert (error["code"], error["param"]) == (code, param)


def test_pictures_keep_the_place_of_the_video_for_errors() -> None:
    (part, *_) = parts_of(read(chat(VIDEO))["messages"])
    assert part == MediaPart("messages[0].content[0].input_video", data=b"one")
