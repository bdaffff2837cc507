"""Files of chats, read and written by the page's code in Node."""

import json
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


def chat_files(tmp_path_factory: pytest.TempPathFactory) -> Evaluate:
    """Evaluate JavaScript in which `m` reads and writes files of chats."""
    files = ("read", "write", "archive")
    return evaluator(tmp_path_factory.mktemp("js"), [f"app/ui/chats/transfer/{name}.js" for name in files])


def read(js: Evaluate, file: Any) -> Any:
    """The chats of a file, or the message of the error."""
    text = file if isinstance(file, str) else json.dumps(file)
    return js("(() => { try { return m.chatsOf(a[0]) } catch (error) { return error.message } })()", text)


def own(*chats: Any) -> dict[str, Any]:
    """A file of Wisp's own with these chats."""
    return {"format": "wisp-chats", "version": 1, "chats": list(chats)}


def branch(chat: Any, texts: bool = True) -> list[Any]:
    """The messages of the shown branch: their texts."""
    by_number = {message["n"]: message for message in chat["messages"]}
    at, out = chat["info"]["shown"], []
    while at is not None:
        out.append(by_number[at]["content"] if texts else by_number[at])
        at = by_number[at]["parent"]
    return out[::-1]


def gpt(id: str, parent: str | None, role: str | None, *parts: Any, **fields: Any) -> dict[str, Any]:
    """A message of ChatGPT's export."""
    content = {"content_type": fields.pop("content_type", "text"), "parts": list(parts)}
    metadata = fields.pop("metadata", {})
    message = role and {"id": id, "author": {"role": role}, "content": content | fields, "metadata": metadata}
    return {"id": id, "parent": parent, "message": message, "children": []}
