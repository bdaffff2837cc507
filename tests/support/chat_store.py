"""Chats in the page's storage, put there without asking a model."""

from typing import Any

from playwright.sync_api import Page

STORE = """async (chats) => {
    const opening = indexedDB.open("wisp-page");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const writing = db.transaction(["chats", "messages", "unindexed"], "readwrite");
    for (const { info, messages } of chats) {
        writing.objectStore("chats").put(info);
        writing.objectStore("unindexed").put({ id: info.id, mark: "stored" });
        for (const message of messages) writing.objectStore("messages").put({ ...message, chat: info.id });
    }
    await new Promise((resolve) => (writing.oncomplete = resolve));
    db.close();
    localStorage["wisp.chat"] = chats.at(-1).info.id;
    history.replaceState(null, "", `#chat=${localStorage["wisp.chat"]}`);
}"""
# Stores chats as version 1 of the page did, and nothing else.
OLD = """async (conversations) => {
    localStorage.clear();
    const deleting = indexedDB.deleteDatabase("wisp-page");
    await new Promise((resolve) => (deleting.onsuccess = resolve));
    const opening = indexedDB.open("wisp-page", 1);
    opening.onupgradeneeded = () =>
        opening.result.createObjectStore("conversations", { keyPath: "id" }).createIndex("updated", "updated");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const writing = db.transaction("conversations", "readwrite");
    for (const conversation of conversations) writing.objectStore("conversations").put(conversation);
    await new Promise((resolve) => (writing.oncomplete = resolve));
    db.close();
    localStorage["wisp.chat"] = conversations[0].id;
}"""


def chat(turns: list[tuple[str, str]], *, id: str = "stored", title: str = "Stored") -> dict[str, Any]:
    """A chat of questions and answers as the page stores it."""
    messages: list[dict[str, Any]] = []
    for question, answer in turns:
        messages.append({"role": "user", "content": question})
        messages.append({"role": "assistant", "content": answer, "finish": "stop"})
    numbered = [{**message, "n": n, "parent": n - 1 if n else None} for n, message in enumerate(messages)]
    info = {"id": id, "title": title, "created": 1, "updated": 1, "shown": len(messages) - 1}
    return {"info": info, "messages": numbered}


def store_chats(page: Page, chats: list[dict[str, Any]]) -> None:
    """Store chats; the last one is shown after a reload."""
    page.evaluate(STORE, chats)


def store_chat(page: Page, turns: list[tuple[str, str]], *, id: str = "stored", title: str = "Stored") -> None:
    """Store a chat of questions and answers; it is the one that the page shows after a reload."""
    store_chats(page, [chat(turns, id=id, title=title)])


def store_old_chats(page: Page) -> None:
    """Empty a profile's storage, and store three chats "x", "y" and "z" as version 1 did. The chat page shows "x".

    `page` is another page of that origin.
    """
    messages = [{"role": "user", "content": "Who was Ada?"}, {"role": "assistant", "content": "A mathematician."}]
    page.evaluate(
        OLD,
        [{"id": name, "title": f"The {name} chat", "created": 1, "updated": 1, "messages": messages} for name in "xyz"],
    )
