"""Stored chats and messages that are damaged: what can be shown of them is shown."""

import base64
from typing import Any

import pytest

from app.openai.video_fields import MAX_FRAMES
from py_engine.media.formats import MAX_SECONDS
from tests.support.js_modules import Evaluate, evaluator

QUESTION = {"n": 0, "parent": None, "role": "user", "content": "Hi"}
ANSWER = {"n": 1, "parent": 0, "role": "assistant", "content": "Hello", "finish": "stop"}
INFO = {"id": "a", "title": "T", "created": 1, "updated": 2, "shown": 1}


@pytest.fixture(scope="module")
def evaluate(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return evaluator(tmp_path_factory.mktemp("records"), ["app/ui/chats/records.js", "app/ui/settings.js"])


def test_what_is_not_damaged_stays_as_it_is(evaluate: Evaluate) -> None:
    assert evaluate("m.readableMessages(a)", QUESTION, ANSWER) == [QUESTION, ANSWER]
    assert evaluate("m.readableInfo(a[0])", INFO) == INFO


@pytest.mark.parametrize(
    "damage",
    [{"content": 5}, {"content": None}, {"role": "x"}, {"role": None, "parent": "x"}, {"content": {}, "parent": None}],
)
def test_a_message_without_a_text_says_so_in_its_place(evaluate: Evaluate, damage: dict[str, Any]) -> None:
    first, second, third = evaluate(
        "m.readableMessages(a)", QUESTION, ANSWER | damage, QUESTION | {"n": 2, "parent": 1}
    )
    assert (first["n"], second["n"], third["n"]) == (0, 1, 2)
    assert second["error"]["code"] == "damaged"
    assert second["content"] == ""


def test_a_record_that_was_lost_has_its_place_too(evaluate: Evaluate) -> None:
    messages = evaluate("m.readableMessages(a)", QUESTION, {"n": 1})
    assert (messages[1]["parent"], messages[1]["error"]["code"]) == (0, "damaged")
    assert evaluate("m.readableInfo(a[0])", {"id": "x"}) == {
        "id": "x",
        "title": "Damaged chat",
        "created": 0,
        "updated": 0,
        "shown": None,
    }


@pytest.mark.parametrize(
    "field",
    [
        {"steps": 5},
        {"steps": [{"content": "", "calls": [{}]}]},
        {"media": [{"kind": "image", "name": "x"}]},
        {"toolCalls": "x"},
        {"words": {"shown": 5, "texts": {}}},
        {"trace": {"request": {}, "journal": {"choices": [{"batches": [[[1]]]}]}}},
        {"error": "x"},
        {"stats": {}},
        {"stats": {"tokens": 1, "perSecond": 1, "firstMs": 1, "prompt": {}}},
        {"sources": [5]},
        {"sources": [{"document": "a", "text": "b", "heading": {"toString": 1}}]},
        {"sources": [{"document": "a", "text": "b", "page": []}]},
        {"words": {"shown": [1], "texts": {"1": {}}}},
        {"cut": {"request": {"model": 5}, "journal": {"choices": []}}},
        {"cut": {"request": {}, "journal": {}}},
        {"cut": {"request": {}, "journal": {"choices": [{"batches": [5]}]}}},
        {"trace": {"request": {"model": []}, "journal": {"choices": []}}},
        {"finish": "x"},
    ],
)
def test_a_damaged_part_is_left_out(evaluate: Evaluate, field: dict[str, Any]) -> None:
    (shown,) = evaluate("m.readableMessages(a)", ANSWER | field)
    assert shown == {name: value for name, value in ANSWER.items() if name not in field}


def video(*frames: tuple[Any, Any], data: bytes | None = None) -> dict[str, Any]:
    """A question with a video of these pictures, (seconds, bytes). `data`: in place of as many bytes."""
    whole = bytes(sum(size for _, size in frames)) if data is None else data
    stored = [{"seconds": seconds, "bytes": size} for seconds, size in frames]
    url = f"data:video/x-mjpeg;base64,{base64.b64encode(whole).decode()}"
    return QUESTION | {"media": [{"kind": "video", "name": "v", "data": url, "frames": stored}]}


def test_a_video_that_the_engine_would_refuse_is_damaged(evaluate: Evaluate) -> None:
    """Else no further question of its chat could be asked."""
    most = MAX_SECONDS * 100
    bare = {"kind": "video", "name": "v", "data": "data:video/x-mjpeg;base64,AAAA"}
    good = [
        *(video((0, 1), (0, 2), (most, 2 + more)) for more in range(4)),
        video(*[(1, 1)] * MAX_FRAMES),
    ]
    bad = [
        QUESTION | {"media": [bare]},
        video(),
        video(*[(1, 1)] * (MAX_FRAMES + 1)),
        video((-1, 1)),
        video((most + 1, 1)),
        video((2, 1), (1, 1)),
        video((0, 0), (0, 4)),
        video((0, 6), (1, -2), data=bytes(4)),
        video((0, 1.5), (1, 1.5), data=bytes(3)),
        video((0, 1), data=bytes(2)),
        video((0, 3), data=bytes(2)),
    ]
    for message in good:
        assert evaluate("m.readableMessages(a)", message) == [message]
    for message in bad:
        assert evaluate("m.readableMessages(a)", message) == [QUESTION]


def test_a_damaged_file_takes_no_other_with_it(evaluate: Evaluate) -> None:
    picture = {"kind": "image", "name": "p", "data": "data:image/png;base64,AAAA"}
    (broken,) = video((0, 3), data=bytes(2))["media"]
    (shown,) = evaluate("m.readableMessages(a)", QUESTION | {"media": [picture, broken, None, 5]})
    assert shown == QUESTION | {"media": [picture]}


def test_parts_that_lack_what_they_may_lack_stay(evaluate: Evaluate) -> None:
    answer = ANSWER | {
        "sources": [{"document": "a", "text": "b"}, {"document": "a", "text": "b", "heading": None, "page": 3}],
        "stats": {"tokens": 1, "perSecond": 1, "firstMs": 1, "context": None, "cached": 0},
        "cut": {"request": {"model": "m"}, "journal": {"answer": {}, "choices": [None, {"batches": [[1, 2]]}]}},
    }
    assert evaluate("m.readableMessages(a)", answer) == [answer | {"parent": 0}]


def test_a_message_whose_number_is_none_is_left_out(evaluate: Evaluate) -> None:
    numbers = [-1, 1.5, "1", 2**52, 2**53, None]
    assert evaluate("m.readableMessages(a)", QUESTION, *({**ANSWER, "n": n} for n in numbers)) == [QUESTION]


def test_settings_of_a_chat_cannot_add_fields_to_requests(evaluate: Evaluate) -> None:
    settings: dict[str, Any] = {
        "temperature": 1,
        "top_k": None,
        "system": "S",
        "top_p": "x",
        "tools": [{}],
        "model": "x",
        "stream": False,
    }
    found = evaluate(
        "(globalThis.localStorage = {getItem: () => null}, m.effectiveSettings({settings: a[0]}))", settings
    )
    assert (found["temperature"], found["top_k"], found["system"], found["top_p"]) == (1, None, "S", 0.95)
    assert not {"tools", "model", "stream"} & set(found)
