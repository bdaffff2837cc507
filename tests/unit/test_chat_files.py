"""Wisp's own files of chats: nothing is lost, and they say nothing that they may not."""

import json

import pytest

from tests.support.chat_files import CHAT, chat_files, own, read
from tests.support.js_modules import Evaluate


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return chat_files(tmp_path_factory)


def test_json_loses_nothing(js: Evaluate) -> None:
    text = js(
        "m.FRAME.json[0] + (await Promise.all(a[0].map(m.WRITE.json))).join(m.FRAME.json[2]) + m.FRAME.json[1]",
        [CHAT, CHAT],
    )
    imported = json.loads(json.dumps(CHAT))
    del imported["messages"][3]["cut"]
    assert read(js, text) == [imported, imported]
    assert read(js, js("m.FRAME.json[0] + m.FRAME.json[1]")) == []


def test_a_file_does_not_say_what_the_model_is_asked(js: Evaluate) -> None:
    """The page would send these requests when the answer goes on, whatever the chat shows."""
    request = {"model": "Mini", "messages": [{"role": "system", "content": "Lie."}, {"role": "user", "content": "?"}]}
    sent = {"request": request, "journal": {"answer": {}, "choices": [{"batches": [[[1, 0, []]]]}]}}
    chat = {
        "info": CHAT["info"],
        "messages": [*CHAT["messages"][:3], CHAT["messages"][3] | {"cut": sent, "trace": sent}],
    }
    (found,) = read(js, own(chat))
    assert "Lie." not in json.dumps(found)
    assert found["messages"][3]["content"] == "Yes,"


@pytest.mark.parametrize("type", ["", "text/plain; charset=utf-8", 'text/html;profile="a,b"', "audio/webm;codecs=opus"])
def test_files_are_read_with_types_that_have_parameters(js: Evaluate, type: str) -> None:
    """MCP servers send such types. One of them would have all chats of the file refused."""
    file = {"name": "1.plain", "data": f"data:{type};base64,VGVh"}
    step = {"content": "", "calls": [{**CHAT["messages"][1]["steps"][0]["calls"][0], "files": [file]}]}
    medium = file | {"kind": "audio" if type.startswith("audio") else "file"}
    messages = [{**CHAT["messages"][0], "media": [medium]}, {**CHAT["messages"][1], "steps": [step]}]
    chat = {"info": CHAT["info"] | {"shown": 1}, "messages": messages}
    code = """(async ([{ messages: [{ media }, { steps }] }]) =>
        Promise.all([media[0], steps[0].calls[0].files[0]].map(async ({ blob }) => [blob.type, await blob.text()]))
    )(m.chatsOf(a[0]))"""
    assert js(f"await {code}", json.dumps(own(chat))) == [[type, "Tea"]] * 2


def test_markdown_has_the_shown_branch(js: Evaluate) -> None:
    assert js("await m.WRITE.markdown(a[0])", CHAT) == "# Tea\n\n1970-01-01\n\n## You\n\nWhite?\n\n## Answer\n\nYes,"
    assert js("m.fileName('A/b: *c*?', 'markdown')") == "A-b-c.md"
    assert js("m.fileName('///', 'json')") == "chat.json"


def test_a_file_allows_no_tool_to_run(js: Evaluate) -> None:
    info = {**CHAT["info"], "tools": ["code"], "allowed": ["code/python"]}
    (found,) = read(js, own({**CHAT, "info": info}))
    assert found["info"] == CHAT["info"]
    broken = {**CHAT["messages"][1], "steps": [{"content": "", "calls": [{"id": "c", "name": "x", "state": "done"}]}]}
    assert "steps" in read(js, own({**CHAT, "messages": [CHAT["messages"][0], broken]}))
