"""Makes a profile ask another host than huggingface.co for models."""

import json

from playwright.sync_api import BrowserContext

STORE = """async (text) => {
    const db = await new Promise((resolve) => {
        const opening = indexedDB.open("wisp-kept", 1);
        opening.onupgradeneeded = () => opening.result.createObjectStore("texts");
        opening.onsuccess = () => resolve(opening.result);
    });
    await new Promise((resolve) => {
        const writing = db.transaction("texts", "readwrite");
        writing.objectStore("texts").put(text, "hub");
        writing.oncomplete = resolve;
    });
    db.close();
}"""


def use_mirror(context: BrowserContext, server: str, hub: str) -> None:
    """Store the address of a hub. `server`: of the tests, which has an empty page."""
    page = context.new_page()
    page.goto(f"{server}tests/blank.html")
    page.evaluate(STORE, json.dumps({"baseURL": hub}))
    page.close()
