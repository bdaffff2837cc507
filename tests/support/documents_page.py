"""The documents dialog of the real page."""

import base64
from typing import Any

from playwright.sync_api import Page

BERT = "/repo/tests/golden/embedding/bert.F16.gguf"
INDEX = """async () => {
    const db = await new Promise((resolve) => {
        const opening = indexedDB.open("wisp-documents");
        opening.onsuccess = () => resolve(opening.result);
    });
    const all = (name) => new Promise((resolve) => {
        const asked = db.transaction(name).objectStore(name).getAll();
        asked.onsuccess = () => resolve(asked.result);
    });
    const [documents, passages] = [await all("documents"), await all("passages")];
    db.close();
    const names = Object.fromEntries(documents.map(({ id, name }) => [id, name]));
    return {
        documents: documents.map(({ name, pages, model }) => ({ name, pages, model })),
        passages: passages.map(({ document, vector, ...rest }) =>
            ({ ...rest, document: names[document], vector: vector instanceof Float32Array ? vector.length : null })),
    };
}"""


def drop(page: Page, files: dict[str, bytes]) -> None:
    """Drop files on the page, as a person does."""
    given = {name: base64.b64encode(data).decode() for name, data in files.items()}
    transfer = page.evaluate_handle(
        """(files) => {
            const transfer = new DataTransfer();
            for (const [name, data] of Object.entries(files)) {
                const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
                transfer.items.add(new File([bytes], name, { lastModified: 1 }));
            }
            return transfer;
        }""",
        given,
    )
    page.dispatch_event("body", "drop", {"dataTransfer": transfer})


def listed(page: Page) -> Any:
    return page.locator("#document-list .document:not(.busy)")


def use_model(page: Page, address: str) -> None:
    page.fill("#embedder-url", address)
    page.press("#embedder-url", "Enter")
