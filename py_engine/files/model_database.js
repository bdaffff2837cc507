/** The cache of model files in IndexedDB: the models, and the records that their files are cut into. */

import { checksum } from "./checksum.js";
import { sha256 } from "./buffers.js";
import { sha256Of } from "./file_hash.js";
import { Database } from "./indexed_db.js";
import { BackgroundStore } from "./background_store.js";
import { dropParts } from "./parts_database.js";

/** @typedef {import("./background_store.js").Entry} Entry */

// key [url, offset, length] -> Entry; a Blob can be read in part. Records that earlier versions stored have no `check`:
// they get one after their SHA-256 has matched.
const POLL_MS = 20; // between two looks for a record that is on its way
const RECORDS = "records";
const MODELS = "models"; // key url -> {url, size, etag, ranged, used: time of the last use in milliseconds, sha256?: of the file, if it was verified, pinned?: never evicted}

const database = new Database("wisp-models", (database) => {
  database.createObjectStore(RECORDS);
  database.createObjectStore(MODELS, { keyPath: "url" });
});

const background = new BackgroundStore((records) =>
  database.transact(RECORDS, "readwrite", (store) => {
    const puts = records.map(({ url, offset, entry }) => store.put(entry, [url, offset, entry.data.size]));
    return /** @type {IDBRequest} */ (puts.at(-1));
  }),
);

/** The keys of a model's records. @param {string} url */
const recordKeys = (url) => IDBKeyRange.bound([url], [url, []]);

/** A model's entry {url, size, etag, ranged}, or undefined. @param {string} url */
export const getModel = (url) => database.transact(MODELS, "readonly", (store) => store.get(url));

/** Notes that a model's file has the SHA-256 that was expected. @param {string} url @param {string} sha256 */
export const putVerified = (url, sha256) => changeModel(url, { sha256 });

/** Sets whether a model is never evicted. @param {string} url @param {boolean} pinned */
export const putPinned = (url, pinned) => changeModel(url, { pinned });

/** The SHA-256 of a model's file, from its records: of each one as soon as it is there. @param {string} url @param {Float64Array} spans (offset, length) of each record, in order @param {AbortSignal} signal */
export const modelSha256 = (url, spans, signal) => sha256Of(recordsOf(url, spans, signal), signal);

/** @param {string} url @param {Float64Array} spans @param {AbortSignal} signal @returns {AsyncGenerator<Blob>} */
async function* recordsOf(url, spans, signal) {
  for (let i = 0; i < spans.length; i += 2) {
    let entry;
    while (!(entry = await entryOf(url, spans[i], spans[i + 1]))) {
      if (signal.aborted) throw new Error("aborted");
      await new Promise((resolve) => setTimeout(resolve, POLL_MS));
    }
    yield entry.data;
  }
}

/**
 * Stores a model's entry, or notes that it is used if there is one.
 * @param {string} url @param {number} size @param {string} etag @param {boolean} ranged whether the server answers range requests
 */
export const noteModel = (url, size, etag, ranged) =>
  database.transact(MODELS, "readwrite", (store) => {
    const entry = store.get(url);
    entry.onsuccess = () => store.put({ ...entry.result, url, size, etag, ranged, used: Date.now() });
    return entry;
  });

/** @param {string} url @param {Record<string, unknown>} changes of its entry */
async function changeModel(url, changes) {
  await database.transact(MODELS, "readwrite", (store) => {
    const entry = store.get(url);
    entry.onsuccess = () => entry.result && store.put({ ...entry.result, ...changes });
    return entry;
  });
}

/** @returns {Promise<{url: string, size: number, etag: string, used?: number, sha256?: string}[]>} */
export const listModels = () => database.transact(MODELS, "readonly", (store) => store.getAll());

/** The [offset, length] of each cached record of a model. @param {string} url */
export async function listRecords(url) {
  const keys = await database.transact(RECORDS, "readonly", (store) => store.getAllKeys(recordKeys(url)));
  const lengths = new Map(keys.map((/** @type {any[]} */ [, offset, length]) => [offset, length]));
  for (const { offset, entry } of background.of(url)) lengths.set(offset, entry.data.size);
  return [...lengths];
}

/** [offset, length, SHA-256] of each cached record of a model. @param {string} url */
export async function recordHashes(url) {
  const found = new Map();
  for (const [[, offset, length], { sha256 }] of await database.entries(RECORDS, recordKeys(url)))
    found.set(offset, [offset, length, sha256]);
  for (const { offset, entry } of background.of(url)) found.set(offset, [offset, entry.data.size, entry.sha256]);
  return [...found.values()];
}

/**
 * A record's entry. Undefined if it is absent or is no longer what was stored.
 * @param {string} url @param {number} offset @param {number} length @returns {Promise<Entry | undefined>}
 */
async function entryOf(url, offset, length) {
  const waiting = background.find(url, offset);
  if (waiting?.data.size === length) return waiting;
  const entry = await database.transact(RECORDS, "readonly", (store) => store.get([url, offset, length]));
  return entry?.data instanceof Blob ? entry : undefined;
}

/**
 * Reads a record: its bytes, the stored SHA-256 (`sha256`), the SHA-256 of its bytes (`digest`; the stored one if the
 * checksum matches), and the milliseconds of reading and of checking. Undefined if it is absent or its file was lost.
 * @param {string} url @param {number} offset @param {number} length
 * @returns {Promise<{ sha256: string, digest: string, buffer: ArrayBuffer, read: number, hash: number } | undefined>}
 */
export async function getRecord(url, offset, length) {
  const begun = performance.now();
  const entry = await entryOf(url, offset, length);
  const buffer = await entry?.data.arrayBuffer().catch(() => undefined);
  if (!entry || !buffer) return undefined;
  const read = performance.now();
  const { sha256: stored, check } = entry;
  const intact = check !== undefined && String(check) === String(checksum(buffer));
  const digest = intact ? stored : await sha256(buffer);
  if (check === undefined && digest === stored && buffer.byteLength === length)
    await putRecord(url, offset, { sha256: digest, check: checksum(buffer), data: new Blob([buffer]) });
  return { sha256: stored, digest, buffer, read: read - begun, hash: performance.now() - read };
}

/**
 * Opens cached records for upload.js, which compares their checksums. Undefined for a record that is absent, has another
 * length, no checksum, or another SHA-256 than its `hash`: getRecord() reads those.
 * @param {string} url @param {Float64Array} spans (offset, length) of each @param {(string | undefined)[]} hashes
 * @returns {(i: number) => Promise<Entry | undefined>}
 */
export const cachedRecords = (url, spans, hashes) => async (i) => {
  const [offset, length] = spans.subarray(2 * i, 2 * i + 2);
  const entry = await entryOf(url, offset, length);
  const whole = entry?.data.size === length && entry.check;
  return whole && entry.sha256 === (hashes[i] ?? entry.sha256) ? entry : undefined;
};

/**
 * Reads bytes [start, end) of a record, unchecked. Undefined if it is absent or its file was lost.
 * @param {string} url @param {number} offset @param {number} length @param {number} start @param {number} end
 */
export const getPart = async (url, offset, length, start, end) =>
  (await entryOf(url, offset, length))?.data
    .slice(start, end)
    .arrayBuffer()
    .catch(() => undefined);

/**
 * Caches a record: from now on it can be read, while it is stored in the background. Returns when there is room for
 * another one.
 * @param {string} url @param {number} offset @param {Entry} entry
 */
export const putRecord = (url, offset, entry) => background.add(url, offset, entry);

/** Waits until a model's records are stored. Rejects with QuotaExceededError if storage is full. @param {string} url */
export const stored = (url) => background.stored(url);

/** Bytes of a model that are not stored yet. @param {string} url */
export const unstoredBytes = (url) => background.of(url).reduce((sum, { entry }) => sum + entry.data.size, 0);

/** Tries again to store a model's records. @param {string} url */
export const retryStore = (url) => background.retry(url);

/** Gives up a model's records that are not stored yet. @param {string} url */
export const dropUnstored = (url) => background.drop(url);

/** Deletes a record. @param {string} url @param {number} offset @param {number} length */
export async function deleteRecord(url, offset, length) {
  background.drop(url, offset);
  await database.transact(RECORDS, "readwrite", (store) => store.delete([url, offset, length]));
}

/** Deletes a model and its records. @param {string} url */
export async function deleteModel(url) {
  background.drop(url);
  await dropParts(url);
  await database.transact(RECORDS, "readwrite", (store) => store.delete(recordKeys(url)));
  await database.transact(MODELS, "readwrite", (store) => store.delete(url));
}

/** Notes when a model's host was asked for another version. @param {string} url @param {number} asked milliseconds since 1970 */
export const putAsked = (url, asked) => changeModel(url, { asked });

/**
 * Copies the records of a model that another file has, too.
 * @param {string} from its URL @param {string} to the other file's @param {[number, number, string][]} wanted offset, length and SHA-256
 * @returns {Promise<[number, number][]>} offset and length of those that were there
 */
export async function adoptRecords(from, to, wanted) {
  const there = new Map();
  for (const [[, , length], entry] of await database.entries(RECORDS, recordKeys(from)))
    there.set(`${length} ${entry.sha256}`, entry);
  const found = wanted.filter(([, length, sha256]) => there.has(`${length} ${sha256}`));
  await database.change([RECORDS], (store) => {
    for (const [offset, length, sha256] of found)
      store(RECORDS).put(there.get(`${length} ${sha256}`), [to, offset, length]);
  });
  return found.map(([offset, length]) => [offset, length]);
}

/**
 * Puts one model in the place of another, at once: its records, size, ETag and hash. What the user has set stays.
 * @param {string} url of the one that is replaced @param {string} next of the other
 */
export async function replaceModel(url, next) {
  const records = await database.entries(RECORDS, recordKeys(next));
  const [before, after] = [await getModel(url), await getModel(next)];
  await database.change([RECORDS, MODELS], (store) => {
    store(RECORDS).delete(recordKeys(url));
    store(RECORDS).delete(recordKeys(next));
    for (const [[, offset, length], entry] of records) store(RECORDS).put(entry, [url, offset, length]);
    store(MODELS).delete(next);
    store(MODELS).put({ ...after, url, pinned: before?.pinned, used: before?.used ?? after.used, asked: Date.now() });
  });
}
