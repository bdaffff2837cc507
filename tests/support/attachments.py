"""Attach pictures and sound in the page, for several files of tests."""

import base64

from playwright.sync_api import JSHandle, Locator, Page, expect

from tests.support.media import MEDIA

TRANSFER = """([files]) => {
    const transfer = new DataTransfer();
    for (const [name, type, data] of files)
        transfer.items.add(new File([Uint8Array.from(atob(data), (c) => c.charCodeAt(0))], name, { type }));
    return transfer;
}"""
PASTE = """(files) => document.body.dispatchEvent(
    new ClipboardEvent("paste", { clipboardData: files, bubbles: true, cancelable: true }),
)"""  # true: the browser pastes by itself
# The media of the newest chat's questions as IndexedDB has them: [kind, name, type, bytes in Base64].
STORED = """async () => {
    const db = await new Promise((resolve) => {
        const opening = indexedDB.open("wisp-page");
        opening.onsuccess = () => resolve(opening.result);
    });
    const all = (name) => new Promise((resolve) => {
        const asked = db.transaction(name).objectStore(name).getAll();
        asked.onsuccess = () => resolve(asked.result);
    });
    const [chats, messages] = [await all("chats"), await all("messages")];
    db.close();
    const newest = chats.sort((a, b) => b.updated - a.updated)[0]?.id;
    const media = messages.filter(({ chat }) => chat === newest).flatMap(({ media = [] }) => media);
    return Promise.all(media.map(async ({ kind, name, blob }) => {
        const bytes = new Uint8Array(await blob.arrayBuffer());
        let text = "";
        for (let i = 0; i < bytes.length; i += 9000) text += String.fromCharCode(...bytes.subarray(i, i + 9000));
        return [kind, name, blob.type, btoa(text)];
    }));
}"""


def attached(page: Page) -> Locator:
    return page.locator("#attachments > li")


def choose(page: Page, *names: str) -> None:
    """Choose files of the golden media for the next question."""
    page.set_input_files("#attach-input", [MEDIA / name for name in names])


def transfer_of(page: Page, *files: tuple[str, str, bytes]) -> JSHandle:
    encoded = [(name, type, base64.b64encode(data).decode()) for name, type, data in files]
    return page.evaluate_handle(TRANSFER, [encoded])


def clear(page: Page) -> None:
    buttons = attached(page).get_by_role("button")
    for _ in range(buttons.count()):
        buttons.first.click()
    expect(page.locator("#attachments")).to_be_hidden()
