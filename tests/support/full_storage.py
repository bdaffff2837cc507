"""A storage that is full until the prompt cache is removed, that fails, or whose writes have to wait."""

from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Page

# Browsers' own quotas do not do for tests: they let some more be written, depending on when they last counted.
# (names of object stores) -> nothing. Workers tell each other on this channel that the prompt cache is removed.
FULL_UNTIL_FREED = """(names) => {
    const { put } = IDBObjectStore.prototype;
    let isFull = true;
    new BroadcastChannel("wisp-prefixes").onmessage = ({ data }) => (isFull &&= data !== "");
    IDBObjectStore.prototype.put = function (...args) {
        if (!isFull || !names.includes(this.name)) return put.apply(this, args);
        throw new DOMException("", "QuotaExceededError");
    };
}"""
# Has the writes to an object store fail as a disk does. The browser's own message stays.
FAILING = """(names) => {
    const { put } = IDBObjectStore.prototype;
    globalThis.mend = () => void (IDBObjectStore.prototype.put = put);
    IDBObjectStore.prototype.put = function (...args) {
        if (!names.includes(this.name)) return put.apply(this, args);
        throw new DOMException("Internal error writing to disk.", "UnknownError");
    };
}"""

# Lets all writes of chats wait until `release()`: a transaction of this page goes on and on.
HOLD = """async () => {
    const opening = indexedDB.open("wisp-page");
    const db = await new Promise((resolve) => (opening.onsuccess = () => resolve(opening.result)));
    const transaction = db.transaction(["chats", "messages", "unindexed"], "readwrite");
    let isHeld = true;
    const goOn = () => isHeld && (transaction.objectStore("chats").count().onsuccess = goOn);
    goOn();
    globalThis.release = async () => {
        isHeld = false;
        await new Promise((resolve) => (transaction.oncomplete = resolve));
        db.close();
    };
}"""


@contextmanager
def held(page: Page) -> Iterator[None]:
    """Let all writes of chats wait for a transaction of `page`."""
    page.evaluate(HOLD)
    yield
    page.evaluate("release()")
