"""Files of chats that are damaged or odd: refused with their place, or read without harm."""

import json
from typing import Any

import pytest

from tests.support.chat_files import CHAT, branch, chat_files, gpt, own, read
from tests.support.js_modules import Evaluate


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return chat_files(tmp_path_factory)


def changed(path: str, value: Any) -> Any:
    """The own file with one value changed."""
    file = json.loads(json.dumps(own(CHAT)))
    at: Any = file
    *names, last = path.split(".")
    for name in names:
        at = at[int(name) if name.isdigit() else name]
    at[last] = value
    return file


@pytest.mark.parametrize(
    ("file", "what"),
    [
        ("{", "damaged"),
        ([], "no chats"),
        ({"a": 1}, "not of ChatGPT"),
        ({"conv": None, "messages": []}, "not of ChatGPT"),
        ([{"conv": {"id": "c"}, "messages": [None, 7]}, 3], "not of ChatGPT"),
        ({"chat_messages": {}}, "not of ChatGPT"),
        ([{"mapping": {}}, 5], "Chat 2 of 2"),
        ([{"chat": {"history": {"messages": None}, "messages": 7}}], "not of ChatGPT"),
        (own(CHAT) | {"version": 9}, "version 9"),
        (own(CHAT) | {"chats": 4}, "no list"),
        (own(7), "chats[0]"),
        (changed("chats.0.info.title", 5), "chats[0].info.title"),
        (changed("chats.0.info.folder", {}), "chats[0].info.folder"),
        (changed("chats.0.info.created", 1e300), "chats[0].info.created"),
        (changed("chats.0.messages.1.toolCalls", 5), "chats[0].messages[1].toolCalls"),
        (changed("chats.0.messages.1.n", 2**53 - 1), "chats[0].messages[1].n"),
        (changed("chats.0.messages.1.content", None), "chats[0].messages[1].content"),
        (changed("chats.0.messages.1.role", "system"), "chats[0].messages[1].role"),
        (changed("chats.0.messages.1.parent", 3), "chats[0].messages[1]"),
        (changed("chats.0.messages.1.n", 0), "chats[0].messages[1]"),
        (changed("chats.0.messages.1.stats", {"tokens": "many"}), "chats[0].messages[1].stats"),
    ],
)
def test_a_damaged_file_is_refused_with_its_place(js: Evaluate, file: Any, what: str) -> None:
    error = read(js, file)
    assert isinstance(error, str)
    assert what in error


def test_odd_values_of_other_programs_do_no_harm(js: Evaluate) -> None:
    odd = {
        "a": None,
        "b": {"parent": 5, "message": {"author": None, "content": "x"}},
        "c": {"parent": "c", "message": 7},
    }
    (chat,) = read(js, [{"title": 5, "create_time": "x", "mapping": odd, "current_node": 9}])
    assert chat["messages"] == []
    assert chat["info"]["title"] == "Untitled"
    assert chat["info"]["created"] > 0
    entry = {"chat": {"history": {"messages": {"1": None, "2": {"role": "user", "content": [{"text": "q"}, 5]}}}}}
    assert branch(read(js, entry)[0]) == ["q\n\n[attachment]"]


@pytest.mark.parametrize("time", [1e300, -1e300, "x", {}, None, 10**400])
def test_a_time_that_is_none_is_now(js: Evaluate, time: Any) -> None:
    nodes = {"a": gpt("a", None, "user", "Hi")}
    (chat,) = read(js, [{"title": "T", "create_time": time, "update_time": time, "mapping": nodes}])
    assert 1.7e12 < chat["info"]["created"] < 1e13
    assert "## You" in js("await m.WRITE.markdown(a[0])", chat)
