"""Chats of other programs: ChatGPT, Open WebUI, Claude, and llama.cpp's web UI."""

from typing import Any

import pytest

from tests.support.chat_files import branch, chat_files, gpt, read
from tests.support.js_modules import Evaluate


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    return chat_files(tmp_path_factory)


def test_chatgpt_s_export(js: Evaluate) -> None:
    nodes = [
        gpt("root", None, None),
        gpt("s", "root", "system", ""),
        gpt("c", "s", "user", "About me", content_type="user_editable_context"),
        gpt("u", "c", "user", "Sum of 2 and 2?"),
        gpt("t", "u", "assistant", content_type="thoughts", thoughts=[{"content": "Add."}]),
        gpt("a", "t", "assistant", "I look it up.", metadata={"model_slug": "gpt-5"}),
        gpt("tool", "a", "tool", "secret"),
        gpt("b", "tool", "assistant", "Four."),
        gpt("b2", "tool", "assistant", "4."),
        gpt("u2", "b", "user", {"content_type": "image_asset_pointer"}, "And this?"),
        gpt("h", "u2", "assistant", "hidden", metadata={"is_visually_hidden_from_conversation": True}),
        gpt("a2", "h", "assistant", "A cat."),
        gpt("other", "c", "user", "Sum of 3 and 3?"),
    ]
    mapping = {node["id"]: node for node in nodes}
    conversation = {"title": "Sums", "create_time": 1700000000.5, "update_time": 1700000001, "mapping": mapping}
    (chat,) = read(js, [conversation | {"current_node": "a2"}])
    assert (chat["info"]["title"], chat["info"]["created"]) == ("Sums", 1700000000500)
    messages = branch(chat, texts=False)
    assert [m["content"] for m in messages] == [
        "Sum of 2 and 2?",
        "I look it up.\n\nFour.",
        "[attachment]\n\nAnd this?",
        "A cat.",
    ]
    assert (messages[1]["reasoning"], messages[1]["model"]) == ("Add.", "gpt-5")
    texts = {m["content"] for m in chat["messages"]}
    assert {"I look it up.\n\n4.", "Sum of 3 and 3?"} <= texts  # the other branches
    (chat,) = read(js, [conversation | {"current_node": "tool"}])
    assert branch(chat)[-1].startswith("I look it up.")
    assert read(js, conversation)[0]["info"]["shown"] is not None


def test_a_chat_of_another_program_has_the_same_id_at_each_import(js: Evaluate) -> None:
    mapping = {"a": gpt("a", None, "user", "Hi")}
    foreign = [
        {"conversation_id": "c", "id": "d", "mapping": mapping},
        {"id": "d", "mapping": mapping},
        {"id": "d", "chat": {"messages": [{"role": "user", "content": "a"}]}},
    ]
    ids = [chat["info"]["id"] for chat in read(js, foreign)]
    assert ids == [chat["info"]["id"] for chat in read(js, foreign)]
    assert len(set(ids)) == 3
    nameless = [{"mapping": mapping}, {"id": 5, "mapping": mapping}, {"id": "", "mapping": mapping}]
    assert len({chat["info"]["id"] for chat in read(js, nameless)}) == 3


def test_open_webui_s_export(js: Evaluate) -> None:
    messages = {
        "1": {"id": "1", "parentId": None, "childrenIds": ["2", "3"], "role": "user", "content": "Hi", "models": ["m"]},
        "2": {"id": "2", "parentId": "1", "childrenIds": [], "role": "assistant", "content": "Hello.", "model": "m"},
        "3": {"id": "3", "parentId": "1", "childrenIds": [], "role": "assistant", "content": "Hey!", "model": "m"},
        "4": {"id": "4", "parentId": "2", "childrenIds": [], "role": "user", "content": "Bye"},
    }
    history = {"messages": messages, "currentId": "4"}
    entry = {
        "id": "e", "title": "Greeting", "created_at": 1700000000, "updated_at": 1700000001, "pinned": True,
        "chat": {"title": "x", "history": history, "params": {"system": "Be brief."}, "models": ["m"]},
    }  # fmt: skip
    (chat,) = read(js, [entry])
    assert branch(chat) == ["Hi", "Hello.", "Bye"]
    assert len(chat["messages"]) == 4
    info = chat["info"]
    assert (info["title"], info["pinned"], info["settings"]) == ("Greeting", True, {"system": "Be brief."})
    assert info["updated"] == 1700000001000
    linear = {
        "chat": {"title": "Old", "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
    }
    assert branch(read(js, linear)[0]) == ["a", "b"]


def test_claude_s_export(js: Evaluate) -> None:
    messages: list[dict[str, Any]] = [
        {"uuid": "1", "sender": "human", "text": "Sum?", "content": [{"type": "text", "text": "Sum?"}],
         "attachments": [{"file_name": "a.txt", "extracted_content": "2 and 2"}], "files": []},
        {"uuid": "2", "sender": "assistant", "text": "I look.\n\nFour.", "content": [
            {"type": "thinking", "thinking": "Add."}, {"type": "text", "text": "I look."},
            {"type": "tool_use", "name": "add", "input": {}}, {"type": "tool_result", "content": []},
            {"type": "text", "text": "Four."}]},
        {"uuid": "3", "sender": "human", "text": "Thanks", "content": []},
    ]  # fmt: skip
    entry: dict[str, Any] = {
        "uuid": "c", "name": "Sums", "created_at": "2026-01-02T03:04:05.678901Z",
        "updated_at": "2026-01-02T03:05:00Z", "account": {"uuid": "x"}, "chat_messages": messages,
    }  # fmt: skip
    chat, empty = read(js, [entry, {"uuid": "d", "name": "", "chat_messages": []}])
    assert branch(chat) == ["[attachment]\n\nSum?", "I look.\n\nFour.", "Thanks"]
    assert branch(chat, texts=False)[1]["reasoning"] == "Add."
    info = chat["info"]
    assert (info["id"], info["title"]) == ("claude c", "Sums")
    assert (info["created"], info["updated"]) == (1767323045678, 1767323100000)
    assert (empty["info"]["title"], empty["messages"]) == ("Untitled", [])
    again = {"uuid": "4", "sender": "assistant", "text": "4.", "parent_message_uuid": "1"}
    parents = ["00000000-0000-4000-8000-000000000000", "1", "2"]
    tree = [message | {"parent_message_uuid": parent} for message, parent in zip(messages, parents, strict=True)]
    (chat,) = read(js, entry | {"chat_messages": [*tree, again], "current_leaf_message_uuid": "4"})
    assert branch(chat) == ["[attachment]\n\nSum?", "4."]
    assert len(chat["messages"]) == 4


def test_the_export_of_llama_cpp_s_web_ui(js: Evaluate) -> None:
    def message(id: Any, parent: Any, role: str, content: str, **fields: Any) -> dict[str, Any]:
        return {"id": id, "convId": "c", "type": "text", "timestamp": 1700000000500, "parent": parent, "role": role,
                "content": content, "children": []} | fields  # fmt: skip

    root = message("r", None, "system", "", type="root")
    messages = [
        root,
        message("s", "r", "system", "Be brief."),
        message("u", "s", "user", "What is it?", extra=[{"type": "imageFile", "name": "a.png", "base64Url": "data:"}]),
        message("a", "u", "assistant", "A cat.", reasoningContent="Ears.", model="m.gguf", timings={}),
        message("b", "u", "assistant", "A dog.", thinking="Tail."),
        message("v", "a", "user", "Why?"),
    ]
    conv = {"id": "c", "name": "A picture", "lastModified": 1700000002000, "currNode": "v"}
    for file in ({"conv": conv, "messages": messages}, [{"conv": conv, "messages": messages}]):
        (chat,) = read(js, file)
        assert branch(chat) == ["[attachment]\n\nWhat is it?", "A cat.", "Why?"]
        answers = [one for one in chat["messages"] if one["role"] == "assistant"]
        assert [one["reasoning"] for one in answers] == ["Ears.", "Tail."]
        assert answers[0]["model"] == "m.gguf"
        info = chat["info"]
        assert (info["id"], info["title"], info["settings"]) == ("llama.cpp c", "A picture", {"system": "Be brief."})
        assert (info["created"], info["updated"]) == (1700000000500, 1700000002000)
    numbered = [message(1, 0, "user", "Hi"), message(2, 1, "assistant", "Hello.")]
    (chat,) = read(js, {"conv": conv | {"currNode": 2}, "messages": numbered})
    assert branch(chat) == ["Hi", "Hello."]


def test_a_long_chat_is_read(js: Evaluate) -> None:
    nodes = [
        gpt(str(n), str(n - 1) if n else None, "user" if n % 2 else "assistant", f"text {n}") for n in range(20_000)
    ]
    (chat,) = read(js, [{"title": "", "mapping": {node["id"]: node for node in nodes}, "current_node": "19999"}])
    assert len(branch(chat)) == 20_000
    assert chat["info"]["title"] == "Untitled"


def test_branches_of_a_long_answer_do_not_repeat_it_for_ever(js: Evaluate) -> None:
    """A file of megabytes would become a chat of gigabytes, or take minutes to read."""
    made = """[...Array(%d).keys()].flatMap((i) => {
      const parent = i ? "n" + (i - 1) : null;
      const author = { role: "assistant" };
      const answer = (id, text) => [id, { parent, message: { author, content: { parts: [text] } } }];
      const thoughts = [{ content: "x".repeat(100) }];
      const thought = { parent, message: { author: {}, content: { content_type: "thoughts", thoughts } } };
      return %s;
    })"""
    read = """
      const [{ messages }] = m.chatsOf(JSON.stringify([{ title: "t", mapping: Object.fromEntries(%s) }]));
      return messages.reduce((sum, { content, reasoning }) => sum + content.length + (reasoning?.length ?? 0), 0);
    """
    branched = made % (4000, '[answer("n" + i, "x".repeat(100)), answer("m" + i, "y")]')
    assert 4000 * 101 <= js(f"(() => {{ {read % branched} }})()") < 12_000_000
    after_one_thought = 'i ? [answer("m" + i, "y")] : [["n0", thought]]'
    star = (made % (200, after_one_thought)).replace('"n" + (i - 1)', '"n0"').replace("repeat(100)", "repeat(100_000)")
    assert 200 <= js(f"(() => {{ {read % star} }})()") < 12_000_000
    chain = made % (60_000, '[i < 59_999 ? ["n" + i, thought] : answer("n" + i, "y")]')
    assert js(f"(() => {{ {read % chain} }})()") == 1 + 59_999 * 102 - 2


def test_an_answer_without_branches_is_one_message_after_very_many_branches(js: Evaluate) -> None:
    long = gpt("n", None, "assistant", "x" * 100_000)
    branches = [gpt(f"m{i}", "n", "assistant", "y") for i in range(200)]
    rest = [gpt("u", "m199", "user", "?"), gpt("a", "u", "assistant", "One."), gpt("b", "a", "assistant", "Two.")]
    (chat,) = read(js, [{"title": "t", "mapping": {node["id"]: node for node in (long, *branches, *rest)}}])
    assert [m["content"] for m in chat["messages"]][-3:] == ["y", "?", "One.\n\nTwo."]
