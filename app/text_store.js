/** Stores small texts in IndexedDB (name -> text) for the worker, which has no localStorage. */
import { openDB } from "idb";
import { notStored } from "./storage/failures.js";
import { withSpace } from "./storage/space.js";

/** @template T @param {(db: import("idb").IDBPDatabase) => Promise<T>} use @returns {Promise<T>} */
async function withDatabase(use) {
  const db = await openDB("wisp-kept", 1, { upgrade: (opened) => void opened.createObjectStore("texts") });
  try {
    return await use(db);
  } finally {
    db.close();
  }
}

/**
 * Reads a text. Rejects with the code storage_unreadable where the browser cannot: whoever would change the text then
 * leaves it as it is, since all else in it would be lost.
 * @param {string} name @returns {Promise<string | undefined>}
 */
export const read = (name) =>
  withDatabase((db) => db.get("texts", name)).catch((error) => {
    const message = `The browser cannot read what it has stored (${error?.message ?? error}). Nothing was changed; try again.`;
    throw Object.assign(new Error(message), { code: "storage_unreadable" });
  });

/**
 * Stores a text. Rejects with the code quota_exceeded where there is no space for it, else with storage_failed.
 * @param {string} name @param {string} text
 */
export const write = (name, text) =>
  withSpace(() => withDatabase((db) => db.put("texts", text, name))).catch((error) => {
    throw notStored(error);
  });
