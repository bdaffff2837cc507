/** Parts of records that have not arrived as a whole, in IndexedDB: a slow download that ends loses little. */

import { checksum } from "./checksum.js";
import { Database } from "./indexed_db.js";

const PARTS = "parts"; // key [url, start, end] of the file -> {check, data: Blob}

const database = new Database("wisp-parts", (database) => database.createObjectStore(PARTS));

/** The keys of a file's parts that begin in a range. @param {string} url @param {number} start @param {number} end */
const keys = (url, start, end) => IDBKeyRange.bound([url, start], [url, end], false, true);

/** Stores bytes [start, end) of a file. @param {string} url @param {number} start @param {number} end @param {ArrayBuffer} bytes */
export const putPart = (url, start, end, bytes) =>
  database.transact(PARTS, "readwrite", (store) =>
    store.put({ check: checksum(bytes), data: new Blob([bytes]) }, [url, start, end]),
  );

/** [start, end] of each stored part of a file. @param {string} url @returns {Promise<[number, number][]>} */
export async function listParts(url) {
  const found = await database.transact(PARTS, "readonly", (store) => store.getAllKeys(keys(url, 0, Infinity)));
  return found.map((/** @type {any[]} */ [, start, end]) => [start, end]);
}

/** The bytes of a stored part; undefined if it is absent or damaged. @param {string} url @param {number} start @param {number} end */
export async function readPart(url, start, end) {
  const entry = await database.transact(PARTS, "readonly", (store) => store.get([url, start, end]));
  const bytes = await entry?.data.arrayBuffer().catch(() => undefined);
  return bytes?.byteLength === end - start && String(checksum(bytes)) === String(entry.check) ? bytes : undefined;
}

/** Removes the parts of a file that begin in a range; default: all. @param {string} url @param {number} [start] @param {number} [end] */
export const dropParts = (url, start = 0, end = Infinity) =>
  database.transact(PARTS, "readwrite", (store) => store.delete(keys(url, start, end)));
