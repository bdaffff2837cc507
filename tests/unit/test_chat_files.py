"""Files of chats: Wisp's own without a loss, ChatGPT's and Open WebUI's, and damaged ones."""

import base64
import io
import json
import zipfile
from typing import Any

import pytest

from tests.support.js_modules import Evaluate, evaluator

CHAT: dict[str, Any] = {
    "info": {
        "id": "a", "title": "Tea", "created": 1, "updated": 2, "shown": 3, "pinned": True, "folder": "Home",
        "settings": {"top_k": 7}, "assistant": {"id": "x", "name": "Bot", "settings": {"system": "Be kind."}},
    },
    "messages": [
        {"n": 0, "parent": None, "role": "user", "content": "Black or green?"},
        {"n": 1, "parent": 0, "role": "assistant", "content": "Green.", "finish": "stop", "model": "Mini",
         "stats": {"tokens": 3, "perSecond": 9.5, "firstMs": 12}, "budget": "turns", "steps": [
             {"content": "Let me see.", "calls": [
                 {"id": "c", "name": "python", "arguments": "{}", "state": "done", "text": "7"},
                 {"id": "d", "name": "python", "arguments": "{}", "state": "running"}]}]},
        {"n": 2, "parent": None, "role": "user", "content": "White?"},
        {"n": 3, "parent": 2, "role": "assistant", "content": "Yes,", "finish": "length", "reasoning": "Hm.",
         "cut": {"request": {"messages": []}, "journal": {"answer": {}, "choices": []}}},
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def js(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    files = ("read", "write", "archive")
    return evaluator(tmp_path_factory.mktemp("js"), [f"app/ui/chats/transfer/{name}.js" for name in files])


def read(js: Evaluate, file: Any) -> Any:
    """The chats of a file, or the message of the error."""
    text = file if isinstance(file, str) else json.dumps(file)
    return js("(() => { try { return m.chatsOf(a[0]) } catch (error) { return error.message } })()", text)


def own(*chats: Any) -> dict[str, Any]:
    return {"format": "wisp-chats", "version": 1, "chats": list(chats)}


def branch(chat: Any, texts: bool = True) -> list[Any]:
    """The messages of the shown branch: their texts."""
    by_number = {message["n"]: message for message in chat["messages"]}
    at, out = chat["info"]["shown"], []
    while at is not None:
        out.append(by_number[at]["content"] if texts else by_number[at])
        at = by_number[at]["parent"]
    return out[::-1]


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


def test_an_archive_whose_files_are_large_in_sum_is_refused(js: Evaluate) -> None:
    """Each of them is small enough to be read, and they may share their bytes."""
    packed = archive({f"conversations-{n}.json": "[]" for n in range(3)})
    large = packed
    at = large.find(b"PK\1\2")
    while at >= 0:
        large = large[: at + 24] + (200_000_000).to_bytes(4, "little") + large[at + 28 :]
        at = large.find(b"PK\1\2", at + 1)
    assert large != packed
    assert "damaged" in in_archive(js, large)


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


def gpt(id: str, parent: str | None, role: str | None, *parts: Any, **fields: Any) -> dict[str, Any]:
    content = {"content_type": fields.pop("content_type", "text"), "parts": list(parts)}
    metadata = fields.pop("metadata", {})
    message = role and {"id": id, "author": {"role": role}, "content": content | fields, "metadata": metadata}
    return {"id": id, "parent": parent, "message": message, "children": []}


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


def in_archive(js: Evaluate, data: bytes) -> Any:
    """The texts of a ZIP archive's conversations, or the message of the error."""
    code = """(async () => {
        const file = new Blob([Uint8Array.fromBase64?.(a[0]) ?? Buffer.from(a[0], "base64")]);
        if (!(await m.isArchive(file))) return "no archive";
        try { return await m.conversationsOf(file) } catch (error) { return error.message }
    })()"""
    return js(code, base64.b64encode(data).decode())


def archive(files: dict[str, str], method: int = zipfile.ZIP_DEFLATED, comment: bytes = b"") -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as packed:
        for name, text in files.items():
            packed.writestr(name, text)
        packed.comment = comment
    return out.getvalue()


def test_an_archive_s_conversations_are_read(js: Evaluate) -> None:
    texts = [
        json.dumps([{"title": "Tee \U0001f375", "n": n, "mapping": {}}] * 3000, ensure_ascii=False) for n in (1, 2)
    ]
    files = {
        "chat.html": "<p>",
        "x/conversations-002.json": texts[1],
        "file-1.png": "?",
        "x/conversations-001.json": texts[0],
    }
    for method, comment in ((zipfile.ZIP_DEFLATED, b""), (zipfile.ZIP_STORED, b"of a program" * 99)):
        assert in_archive(js, archive(files, method, comment)) == texts
    assert "no conversations.json" in in_archive(js, archive({"a.json": "[]"}))
    assert in_archive(js, b"[]") == "no archive"


def test_a_damaged_archive_is_refused(js: Evaluate) -> None:
    text = json.dumps([f"text {n}" for n in range(500)])
    whole = archive({"conversations.json": text})
    assert in_archive(js, whole) == [text]
    sizes = whole.replace(len(text).to_bytes(4, "little"), b"\x01\0\0\0")  # it says that its text has one byte
    assert sizes != whole
    cut = [whole[:n] for n in range(4, len(whole), 97)]
    name = whole.index(b"PK\1\2") + 28  # where the directory has the length of the file's name
    long_name = whole[:name] + b"\xff\xff" + whole[name + 2 :]
    for bad in (
        *cut,
        sizes,
        long_name,
        whole[:60] + b"\xff" * 20 + whole[80:],  # it cannot be unpacked
        archive({"conversations.json": "[]"}, zipfile.ZIP_LZMA),
    ):
        assert "damaged" in in_archive(js, bad)


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


@pytest.mark.parametrize("time", [1e300, -1e300, "x", {}, None, 10**400])
def test_a_time_that_is_none_is_now(js: Evaluate, time: Any) -> None:
    nodes = {"a": gpt("a", None, "user", "Hi")}
    (chat,) = read(js, [{"title": "T", "create_time": time, "update_time": time, "mapping": nodes}])
    assert 1.7e12 < chat["info"]["created"] < 1e13
    assert "## You" in js("await m.WRITE.markdown(a[0])", chat)
