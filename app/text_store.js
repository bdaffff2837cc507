/** Stores small texts in IndexedDB (name -> text) for the worker, which has no localStorage. */
import { openDB } from "idb";

/** @template T @param {(db: import("idb").IDBPDatabase) => Promise<T>} use @returns {Promise<T>} */
async function withDatabase(use) {
  const db = await openDB("wisp-kept", 1, { upgrade: (opened) => void opened.createObjectStore("texts") });
  try {
    return await use(db);
  } finally {
    db.close();
  }
}

/** @param {string} name @returns {Promise<string | undefined>} */
export const read = (name) => withDatabase((db) => db.get("texts", name));

/** @param {string} name @param {string} text */
export const write = (name, text) => withDatabase((db) => db.put("texts", text, name));
