/**
 * The pictures, sounds and files of the message that is being written, in IndexedDB: a reload would lose them. Each tab has a
 * record of its own, whose key is in its sessionStorage. A duplicated tab has a copy of that: its first change is stored in
 * another record. Those of a private chat are never stored.
 */
import { reopened } from "../../storage/reopened.js";

/** @typedef {import("../chats/database.js").Medium} Medium */

const KEY = "wisp.unsent-media";
const MOST_AGE_MS = 7 * 24 * 3600 * 1000; // a tab that is closed leaves its record: it may be opened again

const opened = reopened("wisp-unsent", 1, { upgrade: (db) => void db.createObjectStore("tabs") });

/** The time comes first, so that old records are a range of keys. @param {number} time ms since 1970 */
const keyAt = (time) => `${new Date(time).toISOString()} ${crypto.randomUUID()}`;

/** Runs requests in one transaction. @template T @param {(store: any) => T} use @returns {Promise<Awaited<T>>} */
async function withRecords(use) {
  const transaction = (await opened()).transaction("tabs", "readwrite");
  transaction.done.catch(() => {}); // a request that fails rejects, too
  const store = transaction.objectStore("tabs");
  const used = await use(store);
  await transaction.done;
  return used;
}

/** @type {(value?: unknown) => void} releases the lock of this tab's key */
let release = () => {};

/** Locks a key until the page ends, or another key is locked. False: another tab has it. @param {string} key @returns {Promise<boolean>} */
function isOwn(key) {
  release();
  const released = new Promise((resolve) => (release = resolve));
  return new Promise((resolve) => {
    const use = (/** @type {Lock | null} */ lock) => (resolve(lock !== null), lock && released);
    navigator.locks.request(`${KEY} ${key}`, { ifAvailable: true }, use).catch(() => resolve(true));
  });
}

/** Deletes old records, but not those of open tabs, which hold the locks of their keys. */
async function deleteOld() {
  const { held = [] } = await navigator.locks.query();
  await withRecords(async (store) => {
    const old = await store.getAllKeys(IDBKeyRange.upperBound(keyAt(Date.now() - MOST_AGE_MS)));
    const isOpen = (/** @type {string} */ key) => held.some(({ name }) => name === `${KEY} ${key}`);
    for (const key of old) if (!isOpen(key)) store.delete(key).catch(() => {});
  });
}

/** @param {Medium[]} media @param {boolean} isPrivate */
export function keepUnsentMedia(media, isPrivate) {
  const before = sessionStorage.getItem(KEY);
  if (!media.length || isPrivate) {
    if (!before) return;
    sessionStorage.removeItem(KEY);
    withRecords((store) => store.delete(before)).catch(() => {});
    return;
  }
  const key = before ?? keyAt(Date.now());
  if (!before) void isOwn(key);
  try {
    sessionStorage.setItem(KEY, key);
  } catch {
    return; // the message's text has filled it
  }
  withRecords((store) => store.put(media, key)).catch(() => {}); // storage is full, perhaps: they can still be sent
}

/** What was not sent when the page ended. @returns {Promise<Medium[]>} */
export async function unsentMedia() {
  const key = sessionStorage.getItem(KEY);
  const reading = withRecords((store) => (key ? store.get(key) : [])).catch(() => []); // first: what is added now is stored after it
  if (key && !(await isOwn(key))) sessionStorage.removeItem(KEY);
  deleteOld().catch(() => {}); // without locks nothing is deleted
  return (await reading) ?? [];
}

/** Whether this tab has stored media. */
export const hasUnsentMedia = () => sessionStorage.getItem(KEY) !== null;
