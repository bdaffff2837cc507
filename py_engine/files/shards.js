// Moves a model's bytes: HTTP -> ArrayBuffer, IndexedDB <-> ArrayBuffer, SHA-256. It decides nothing: what to fetch,
// keep, check or try again is decided by download.py and shards.py. No byte of it passes through the WASM heap.

const DATABASE = "wisp-models";
// key [url, offset, length] -> {sha256, check: checksum(), data: Blob}; a Blob can be read in part. Those kept by earlier
// versions have no `check`: they get one when their SHA-256 was found to be right.
const RECORDS = "records";
const MODELS = "models"; // key url -> {url, size, etag, ranged, used: when it was last opened, in milliseconds}

/** An HTTP answer whose body is taken piece by piece. */
class Body {
  /** @param {Response} response */
  constructor(response) {
    const header = (/** @type {string} */ name) => response.headers.get(name);
    const total = header("content-range")?.match(/\/(\d+)$/)?.[1];
    this.status = response.status;
    this.statusText = response.statusText;
    this.etag = header("etag") ?? header("last-modified") ?? "";
    this.length = Number(header("content-encoding") ? NaN : (header("content-length") ?? NaN)); // of this answer
    this.size = response.status === 206 ? Number(total ?? NaN) : this.length; // of the file; NaN if not told
    this.reader = response.body?.getReader();
    /** @type {Uint8Array | undefined} what was read beyond the last piece */
    this.rest = undefined;
    this.cancelled = false;
  }

  /**
   * Fills `target` from `at` on with the next bytes, at most up to `end`; reports the bytes as they come.
   * Gives the position reached: less than `end` when the body ended or the connection was lost.
   * @param {ArrayBuffer} target @param {number} at @param {number} end @param {(bytes: number) => void} onBytes
   */
  async fill(target, at, end, onBytes) {
    const view = new Uint8Array(target);
    let unreported = 0;
    let reported = performance.now();
    while (at < end) {
      if (!this.rest) {
        let next;
        try {
          next = await this.reader?.read();
        } catch {
          break;
        }
        if (!next || next.done) break;
        this.rest = next.value;
      }
      const piece = this.rest.subarray(0, end - at);
      view.set(piece, at);
      at += piece.length;
      unreported += piece.length;
      this.rest = piece.length < this.rest.length ? this.rest.subarray(piece.length) : undefined;
      if (performance.now() - reported > 50 && !this.cancelled) {
        onBytes(unreported);
        unreported = 0;
        reported = performance.now();
      }
    }
    if (unreported && !this.cancelled) onBytes(unreported);
    return at;
  }

  /**
   * Reads over `count` bytes; gives how many there were.
   * @param {number} count
   */
  async skip(count) {
    const scratch = new ArrayBuffer(Math.min(count, 1 << 20));
    let done = 0;
    while (done < count) {
      const want = Math.min(count - done, scratch.byteLength);
      const got = await this.fill(scratch, 0, want, () => undefined);
      done += got;
      if (got < want) break;
    }
    return done;
  }

  cancel() {
    this.cancelled = true; // whoever listened may be gone
    this.reader?.cancel().catch(() => undefined);
  }
}

/**
 * Asks for bytes [start, end) of a file. Rejects where there is no answer at all (offline, CORS, abort).
 * @param {string} url @param {number} start @param {number} end @param {AbortSignal} signal
 */
export async function request(url, start, end, signal) {
  return new Body(await fetch(url, { headers: { Range: `bytes=${start}-${end - 1}` }, signal, cache: "no-store" }));
}

/** The size of a file by its HEAD answer; NaN if that does not tell. @param {string} url @param {AbortSignal} signal */
export async function sizeByHead(url, signal) {
  const response = await fetch(url, { method: "HEAD", signal, cache: "no-store" }).catch(() => undefined);
  return response?.ok ? Number(response.headers.get("content-length") ?? NaN) : NaN;
}

/** @param {number} length */
export const allocate = (length) => new ArrayBuffer(length);

/** Frees a buffer's memory now. @param {ArrayBuffer} buffer */
export const release = (buffer) => void buffer.transfer?.(0);

/**
 * Copies `length` bytes between buffers.
 * @param {ArrayBuffer} from @param {number} start @param {ArrayBuffer} to @param {number} at @param {number} length
 */
export function copy(from, start, to, at, length) {
  new Uint8Array(to).set(new Uint8Array(from, start, length), at);
}

/** The SHA-256 of a buffer, in hex. @param {ArrayBuffer} buffer */
export async function sha256(buffer) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", buffer));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Two sums that tell of any damage to a buffer on a disk, once its SHA-256 has told that it arrived as it was meant. Each
 * little-endian word and its place are mixed (xor, shift and multiply, so that no two words at a place come to the same)
 * and added to the first sum, mixed once more and added to the second: in any order, so that a GPU can do it as well
 * (checksum.wgsl). The first begins with the number of bytes; zeros stand in for those that a last word lacks.
 * @param {ArrayBuffer} buffer @param {number} length of what counts
 * @returns {number[]} u32
 */
export function checksum(buffer, length = buffer.byteLength) {
  const whole = length >> 2;
  const [first, second] = sums(new Uint32Array(buffer, 0, whole), 0);
  const rest = new Uint8Array(4);
  rest.set(new Uint8Array(buffer, 4 * whole, length % 4));
  const end = length % 4 ? sums(new Uint32Array(rest.buffer), whole) : [0, 0];
  return [(length + first + end[0]) >>> 0, (second + end[1]) >>> 0];
}

/** @param {Uint32Array} words @param {number} at the place of the first */
function sums(words, at) {
  let place = Math.imul(at, 0x9e3779b1);
  let first = 0;
  let second = 0;
  for (let i = 0; i < words.length; i++) {
    let word = words[i] ^ place;
    place = (place + 0x9e3779b1) | 0;
    word = Math.imul(word ^ (word >>> 16), 0x7feb352d);
    word ^= word >>> 15;
    first = (first + word) | 0;
    word = Math.imul(word, 0x846ca68b);
    second = (second + (word ^ (word >>> 16))) | 0;
  }
  return [first, second];
}

/** Part of a File, read from disk. @param {Blob} blob @param {number} start @param {number} end */
export const slice = (blob, start, end) => blob.slice(start, end).arrayBuffer();

/** Storage still free for this site, in bytes; Infinity where the browser does not tell. */
export async function freeStorage() {
  const { quota, usage } = (await navigator.storage?.estimate?.()) ?? {};
  return quota === undefined || usage === undefined ? Infinity : quota - usage;
}

/** @type {Promise<IDBDatabase> | undefined} */
let opening;

/** @returns {Promise<IDBDatabase>} */
function database() {
  opening ??= new Promise((resolve, reject) => {
    const asked = indexedDB.open(DATABASE, 1);
    asked.onupgradeneeded = () => {
      asked.result.createObjectStore(RECORDS);
      asked.result.createObjectStore(MODELS, { keyPath: "url" });
    };
    asked.onerror = () => reject(plain(asked.error));
    asked.onsuccess = () => {
      asked.result.onversionchange = asked.result.onclose = () => {
        asked.result.close();
        opening = undefined;
      };
      resolve(asked.result);
    };
  });
  opening.catch(() => (opening = undefined));
  return opening;
}

/**
 * An Error of the same name: Pyodide does not take Chromium's QuotaExceededError for an exception.
 * @param {DOMException | null} error
 */
const plain = (error) => Object.assign(new Error(error?.message), { name: error?.name ?? "AbortError" });

/**
 * One transaction of one request. A full disk shows in `onabort` alone.
 * @param {string} store @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest} ask
 * @returns {Promise<any>}
 */
async function transact(store, mode, ask) {
  const transaction = (await database()).transaction(store, mode, { durability: "relaxed" });
  return new Promise((resolve, reject) => {
    const asked = ask(transaction.objectStore(store));
    transaction.oncomplete = () => resolve(asked.result);
    transaction.onabort = () => reject(plain(transaction.error ?? asked.error));
  });
}

/** @param {string} url */
const allOf = (url) => IDBKeyRange.bound([url], [url, []]);

/** What is known of a model: {url, size, etag, ranged}, or undefined. @param {string} url */
export const getModel = (url) => transact(MODELS, "readonly", (store) => store.get(url));

/** @param {string} url @param {number} size @param {string} etag @param {boolean} ranged whether the server cuts */
export const putModel = (url, size, etag, ranged) =>
  transact(MODELS, "readwrite", (store) => store.put({ url, size, etag, ranged, used: Date.now() }));

/** Notes that a model is used now. @param {string} url */
export async function touchModel(url) {
  const transaction = (await database()).transaction(MODELS, "readwrite", { durability: "relaxed" });
  const store = transaction.objectStore(MODELS);
  const asked = store.get(url);
  asked.onsuccess = () => asked.result && store.put({ ...asked.result, used: Date.now() });
}

/** @returns {Promise<{url: string, size: number, etag: string, used?: number}[]>} */
export const listModels = () => transact(MODELS, "readonly", (store) => store.getAll());

/** The [offset, length] of every record kept of a model. @param {string} url */
export async function listRecords(url) {
  const keys = await transact(RECORDS, "readonly", (store) => store.getAllKeys(allOf(url)));
  return keys.map((/** @type {any[]} */ [, offset, length]) => [offset, length]);
}

/**
 * A record's bytes, the SHA-256 kept with it and the one it has (by its checksum, where that is right), and the
 * milliseconds of reading and of checking; undefined if it is absent or its file was lost.
 * @param {string} url @param {number} offset @param {number} length
 * @returns {Promise<{ sha256: string, digest: string, buffer: ArrayBuffer, read: number, hash: number } | undefined>}
 */
export async function getRecord(url, offset, length) {
  const begun = performance.now();
  const entry = await transact(RECORDS, "readonly", (store) => store.get([url, offset, length]));
  if (!(entry?.data instanceof Blob)) return undefined;
  const buffer = await entry.data.arrayBuffer().catch(() => undefined);
  if (!buffer) return undefined;
  const read = performance.now();
  const { sha256: kept, check } = entry;
  const right = check !== undefined && String(check) === String(checksum(buffer));
  const digest = right ? kept : await sha256(buffer);
  if (check === undefined && digest === kept && buffer.byteLength === length) {
    await putRecord(url, offset, buffer, digest).catch(() => undefined); // no room: looked at in the same way again
  }
  return { sha256: kept, digest, buffer, read: read - begun, hash: performance.now() - read };
}

/**
 * Records of a model for upload.js, which compares their checksums. Undefined for one that is not there, not as long as
 * it was, has no checksum, or is not what its `hash` says: getRecord() has to look at it.
 * @param {string} url @param {Float64Array} spans (offset, length) of each @param {(string | undefined)[]} hashes
 * @returns {(i: number) => Promise<{ data: Blob, check: number[] } | undefined>}
 */
export const keptRecords = (url, spans, hashes) => async (i) => {
  const [offset, length] = spans.subarray(2 * i, 2 * i + 2);
  const entry = await transact(RECORDS, "readonly", (store) => store.get([url, offset, length]));
  const whole = entry?.data instanceof Blob && entry.data.size === length && entry.check;
  return whole && entry.sha256 === (hashes[i] ?? entry.sha256) ? entry : undefined;
};

/**
 * The same of a File, which nobody checks. @param {Blob} file @param {Float64Array} spans
 * @returns {(i: number) => Promise<{ data: Blob }>}
 */
export const fileParts = (file, spans) => async (i) => ({
  data: file.slice(spans[2 * i], spans[2 * i] + spans[2 * i + 1]),
});

/**
 * Bytes [start, end) of a record, unchecked; undefined if it is absent or its file was lost.
 * @param {string} url @param {number} offset @param {number} length @param {number} start @param {number} end
 * @returns {Promise<ArrayBuffer | undefined>}
 */
export async function getPart(url, offset, length, start, end) {
  const entry = await transact(RECORDS, "readonly", (store) => store.get([url, offset, length]));
  if (!(entry?.data instanceof Blob)) return undefined;
  return entry.data
    .slice(start, end)
    .arrayBuffer()
    .catch(() => undefined);
}

/**
 * Keeps a record. Rejects with QuotaExceededError when the site's storage is full.
 * @param {string} url @param {number} offset @param {ArrayBuffer} buffer @param {string} sha256
 */
export const putRecord = (url, offset, buffer, sha256) =>
  transact(RECORDS, "readwrite", (store) =>
    store.put({ sha256, check: checksum(buffer), data: new Blob([buffer]) }, [url, offset, buffer.byteLength]),
  );

/** @param {string} url @param {number} offset @param {number} length */
export const deleteRecord = (url, offset, length) =>
  transact(RECORDS, "readwrite", (store) => store.delete([url, offset, length]));

/** Forgets a model and its records. @param {string} url */
export async function deleteModel(url) {
  await transact(RECORDS, "readwrite", (store) => store.delete(allOf(url)));
  await transact(MODELS, "readwrite", (store) => store.delete(url));
}

/** @returns {Promise<IDBDatabase>} a database of its own: one record of JSON for a device and model */
function choices() {
  return new Promise((resolve, reject) => {
    const asked = indexedDB.open("wisp-kernels", 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore("choices");
    asked.onerror = () => reject(plain(asked.error));
    asked.onsuccess = () => resolve(asked.result);
  });
}

/** @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest} ask @returns {Promise<any>} */
async function choose(mode, ask) {
  const opened = await choices();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = opened.transaction("choices", mode);
      const asked = ask(transaction.objectStore("choices"));
      transaction.oncomplete = () => resolve(asked.result);
      transaction.onabort = () => reject(plain(transaction.error ?? asked.error));
    });
  } finally {
    opened.close();
  }
}

/** The choice of kernels kept under a key, or undefined. @param {string} key */
export const getChoice = (key) => choose("readonly", (store) => store.get(key));

/** @param {string} key @param {string} choice JSON */
export const putChoice = (key, choice) => choose("readwrite", (store) => store.put(choice, key));
