"""Server-sent events, with the bytes split anywhere."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.upstreams.server_sent_events import Event, Events

STREAM = (
    "\ufeff: a comment\r\n"
    'data: {"text": "Grüße, 世界 🌍"}\r\n\r\n'
    "event: response.created\rdata:first\rdata: second\r\r"
    "id: 7\nretry: 10\ndata\n\n"
    ": keep-alive\n\n\n"
    "data:  two blanks\n\n"
    "data: [DONE]"
).encode()
EVENTS = [
    Event("", '{"text": "Grüße, 世界 🌍"}'),
    Event("response.created", "first\nsecond"),
    Event("", ""),
    Event("", " two blanks"),
    Event("", "[DONE]"),  # no blank line after it
]


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_cut_anywhere(cuts: list[int]) -> None:
    """The bytes may be split inside a character, and between CR and LF."""
    bounds = [0, *sorted(cuts), len(STREAM)]
    events = Events()
    found = [e for a, b in itertools.pairwise(bounds) for e in events.feed(STREAM[a:b])]
    assert found + events.end() == EVENTS


def test_byte_by_byte() -> None:
    events = Events()
    found = [e for i in range(len(STREAM)) for e in events.feed(STREAM[i : i + 1])]
    assert found + events.end() == EVENTS


@pytest.mark.parametrize("data", [b"", b"\n\n\n", b": only comments\n\n", b"event: nameless\n\n"])
def test_comments_and_empty_events_are_ignored(data: bytes) -> None:
    events = Events()
    assert events.feed(data) + events.end() == []


def test_an_event_comes_with_its_blank_line_not_later() -> None:
    events = Events()
    assert events.feed(b"data: 1\n") == []
    assert events.feed(b"\n") == [Event("", "1")]
    assert events.feed(b"data: 2\r\n\r") == [Event("", "2")]
    assert events.feed(b"\n") == []


def test_broken_utf8_becomes_a_replacement_character() -> None:
    events = Events()
    assert events.feed(b"data: \xff\xe4\n\n") == [Event("", "\ufffd\ufffd")]
