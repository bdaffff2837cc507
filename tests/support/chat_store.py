"""Chats in the page's storage, put there without asking a model."""

from typing import Any

from playwright.sync_api import Page

STORE = """async (conversation) => {
    const db = await new Promise((resolve) => {
        const opening = indexedDB.open("wisp-page");
        opening.onsuccess = () => resolve(opening.result);
    });
    await new Promise((resolve) => {
        const writing = db.transaction("conversations", "readwrite");
        writing.objectStore("conversations").put(conversation);
        writing.oncomplete = resolve;
    });
    db.close();
    localStorage["wisp.chat"] = conversation.id;
}"""


def store_chat(page: Page, turns: list[tuple[str, str]], *, id: str = "stored", title: str = "Stored") -> None:
    """Store a chat of questions and answers; it is the one that the page shows after a reload."""
    messages: list[dict[str, Any]] = []
    for question, answer in turns:
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer, "finish": "stop"})
    page.evaluate(STORE, {"id": id, "title": title, "created": 1, "updated": 1, "messages": messages})
