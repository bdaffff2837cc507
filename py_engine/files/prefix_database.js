/**
 * Stored prefixes: the keys and values of blocks of tokens, so that a later visit need not compute them.
 *
 * A block's bytes are a file of the origin private file system, which browsers read several times as fast as IndexedDB's
 * Blobs (prefix_reader.js). Its entry in IndexedDB is written after the file and removed before it: what has an entry is
 * whole, even if the page is killed at any moment. Files without an entry are removed by the next tidyPrefixes().
 */
import { xxHash } from "./file_hash.js";
import { Database } from "./indexed_db.js";

/**
 * @typedef {object} StoredBlock
 * @property {number} depth blocks before it
 * @property {number} prompted its first tokens that were computed as a prompt
 * @property {number} groups bit g: it has the page of page group g
 * @property {number} bytes
 * @property {string} hash its xxHash64, in hex
 * @property {number} used time of the last use in milliseconds
 */

const BLOCKS = "blocks"; // key [layout, key] -> StoredBlock
const SETTINGS = "settings"; // key "limit" -> bytes
const TRIES = 5; // to remove a file that is in use
const DEFAULT_LIMIT = 2 ** 31; // bytes of all blocks
const database = new Database("wisp-prefixes", (opened) => {
  opened.createObjectStore(BLOCKS);
  opened.createObjectStore(SETTINGS);
});
const changes = new BroadcastChannel("wisp-prefixes"); // tells other workers of this browser which layouts have changed
/** @type {Set<string>} layouts that another worker has changed; "": all */
const changed = new Set();
let removals = 0; // by any worker, of everything or of what exceeds a new limit
changes.onmessage = ({ data }) => {
  changed.add(data);
  if (data === "") removals++;
};

/** Tells every worker that stored blocks are being removed, so that none stores what it has in hand. */
function announceRemoval() {
  removals++;
  changed.add("");
  changes.postMessage("");
}

/** How often blocks were removed, all of them or beyond a new limit. */
export function prefixRemovals() {
  return removals;
}

/** Whether another worker has changed the blocks of a layout since the last call. @param {string} layout */
export function prefixesChanged(layout) {
  const all = changed.delete("");
  return changed.delete(layout) || all;
}

/** @type {Map<string, Promise<FileSystemDirectoryHandle>>} by layout */
const folders = new Map();

/** The folder of a layout's files. @param {string} layout @returns {Promise<FileSystemDirectoryHandle>} */
export function folderOf(layout) {
  let folder = folders.get(layout);
  if (!folder) {
    const root = navigator.storage.getDirectory();
    const all = root.then((opened) => opened.getDirectoryHandle("wisp-prefixes", { create: true }));
    folder = all.then((opened) => opened.getDirectoryHandle(layout, { create: true }));
    folders.set(layout, folder);
    folder.catch(() => folders.delete(layout));
  }
  return folder;
}

/** @returns {Promise<[string, string, StoredBlock][]>} (layout, key, entry) of all blocks */
async function allBlocks() {
  return (await database.entries(BLOCKS)).map(([[layout, key], entry]) => [layout, key, entry]);
}

/** The stored blocks of a layout: [key, entry]. @param {string} layout @returns {Promise<[string, StoredBlock][]>} */
export async function listPrefixes(layout) {
  const range = IDBKeyRange.bound([layout], [layout, []]);
  return (await database.entries(BLOCKS, range)).map(([[, key], entry]) => [key, entry]);
}

/**
 * Stores a block, unless blocks are removed in the meantime. Rejects with QuotaExceededError if storage is full.
 * @param {string} layout @param {string} key @param {{ depth: number, prompted: number, groups: number }} about
 * @param {ArrayBuffer} data
 */
export async function putPrefix(layout, key, about, data) {
  const before = removals;
  const folder = await folderOf(layout);
  const handle = await folder.getFileHandle(key, { create: true });
  const file = await handle.createWritable();
  try {
    await file.write(data);
    await file.close();
  } catch (/** @type {any} */ error) {
    await file.abort().catch(() => {});
    throw Object.assign(new Error(error.message), { name: error.name }); // Pyodide takes no DOMException for an error
  }
  const entry = { ...about, bytes: data.byteLength, hash: await xxHash(data), used: Date.now() };
  let wanted = false;
  try {
    await database.transact(BLOCKS, "readwrite", (store) => {
      wanted = removals === before; // a removal that is announced later has a later transaction
      return wanted ? store.put(entry, [layout, key]) : store.count();
    });
  } catch (error) {
    await folder.removeEntry(key).catch(() => {}); // without an entry, it would only take space
    throw error;
  }
  if (wanted) changes.postMessage(layout);
  else await folder.removeEntry(key).catch(() => {});
}

/** Sets the time of last use of blocks to now. @param {string} layout @param {string[]} keys */
export async function touchPrefixes(layout, keys) {
  const used = Date.now();
  await database.transact(BLOCKS, "readwrite", (store) => {
    for (const key of keys) {
      const entry = store.get([layout, key]);
      entry.onsuccess = () => entry.result && store.put({ ...entry.result, used }, [layout, key]);
    }
    return store.count();
  });
}

/** @param {[string, string][]} blocks (layout, key) */
export async function removePrefixes(blocks) {
  if (!blocks.length) return;
  await database.transact(BLOCKS, "readwrite", (store) => blocks.map((key) => store.delete(key))[0]);
  for (const layout of new Set(blocks.map(([layout]) => layout))) changes.postMessage(layout);
  for (const [layout, key] of blocks) await (await folderOf(layout)).removeEntry(key).catch(() => {});
}

/** @returns {Promise<{ blocks: number, bytes: number, limit: number }>} what is stored in all */
export async function prefixUsage() {
  const all = await allBlocks();
  return { blocks: all.length, bytes: all.reduce((sum, [, , { bytes }]) => sum + bytes, 0), limit: await limit() };
}

/** @returns {Promise<number>} */
async function limit() {
  return (await database.transact(SETTINGS, "readonly", (store) => store.get("limit"))) ?? DEFAULT_LIMIT;
}

/** Sets how many bytes may be stored, and removes what exceeds them. @param {number} bytes */
export async function limitPrefixes(bytes) {
  if (bytes < (await limit())) announceRemoval();
  await database.transact(SETTINGS, "readwrite", (store) => store.put(bytes, "limit"));
  await tidyPrefixes();
}

/**
 * Removes the least recently used blocks until no more bytes than the limit are stored, and files without an entry. Of
 * blocks that were used at the same time, those of the prompts' ends go first, since they are of no use without the others.
 */
export async function tidyPrefixes() {
  const most = await limit();
  const all = (await allBlocks()).sort(([, , a], [, , b]) => a.used - b.used || b.depth - a.depth);
  let bytes = all.reduce((sum, [, , entry]) => sum + entry.bytes, 0);
  /** @type {[string, string][]} */
  const removed = [];
  for (const [layout, key, entry] of all) {
    if (bytes <= most) break;
    removed.push([layout, key]);
    bytes -= entry.bytes;
  }
  await removePrefixes(removed);
  const stored = new Set(all.slice(removed.length).map(([layout, key]) => `${layout}/${key}`));
  await removeFiles((path) => !stored.has(path));
}

/** Removes everything. */
export async function clearPrefixes() {
  announceRemoval();
  await database.transact(BLOCKS, "readwrite", (store) => store.clear());
  await removeFiles(() => true);
}

/** Removes everything where there is no space for what cannot be computed again. @returns {Promise<boolean>} whether there was anything */
export async function freePrefixes() {
  const { blocks } = await prefixUsage();
  if (blocks) await clearPrefixes();
  return blocks > 0;
}

/** @param {(path: string) => boolean} unwanted "layout/key" -> whether to remove the file */
async function removeFiles(unwanted) {
  const root = await navigator.storage.getDirectory();
  const all = await root.getDirectoryHandle("wisp-prefixes", { create: true });
  for await (const [layout, folder] of all.entries())
    for await (const [key] of /** @type {FileSystemDirectoryHandle} */ (folder).entries())
      if (unwanted(`${layout}/${key}`)) await removeFile(/** @type {FileSystemDirectoryHandle} */ (folder), key);
}

/** Removes a file, if it need not wait long for a worker that reads it. @param {FileSystemDirectoryHandle} folder @param {string} key */
async function removeFile(folder, key) {
  for (let tried = 0; tried < TRIES; tried++) {
    const error = await folder.removeEntry(key).catch((reason) => reason);
    if (error?.name !== "NoModificationAllowedError") return;
    await new Promise((done) => setTimeout(done, 100));
  }
}
