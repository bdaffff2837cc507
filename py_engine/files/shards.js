/**
 * Moves a model's bytes: HTTP -> ArrayBuffer, IndexedDB <-> ArrayBuffer, hashes. download.py and shards.py decide what to
 * download, store, check or retry. No byte passes through the WASM heap.
 */

const DATABASE = "wisp-models";
// key [url, offset, length] -> {sha256, check: checksum(), data: Blob}; a Blob can be read in part. Records that earlier
// versions stored have no `check`: they get one after their SHA-256 has matched.
const RECORDS = "records";
const MODELS = "models"; // key url -> {url, size, etag, ranged, used: time of the last use in milliseconds}

/** An HTTP response whose body is read in parts. */
class Body {
  /** @param {Response} response */
  constructor(response) {
    const header = (/** @type {string} */ name) => response.headers.get(name);
    const total = header("content-range")?.match(/\/(\d+)$/)?.[1];
    this.status = response.status;
    this.statusText = response.statusText;
    this.etag = header("etag") ?? header("last-modified") ?? "";
    this.length = Number(header("content-encoding") ? NaN : (header("content-length") ?? NaN)); // bytes of this response
    this.size = response.status === 206 ? Number(total ?? NaN) : this.length; // bytes of the file; NaN if unknown
    this.reader = response.body?.getReader();
    /** @type {Uint8Array | undefined} bytes that were read but not returned yet */
    this.rest = undefined;
    this.cancelled = false;
  }

  /**
   * Fills `target` from `at` to `end` with the next bytes, and reports their number as they arrive.
   * Returns the position reached: less than `end` if the body ended or the connection was lost.
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
   * Skips `count` bytes; returns how many there were.
   * @param {number} count
   */
  async skip(count) {
    const scratch = new ArrayBuffer(Math.min(count, 1 << 20));
    let done = 0;
    while (done < count) {
      const size = Math.min(count - done, scratch.byteLength);
      const read = await this.fill(scratch, 0, size, () => undefined);
      done += read;
      if (read < size) break;
    }
    return done;
  }

  cancel() {
    this.cancelled = true; // onBytes may be a destroyed proxy
    this.reader?.cancel().catch(() => undefined);
  }
}

/**
 * Requests bytes [start, end) of a file. Rejects without a response (offline, CORS, abort).
 * @param {string} url @param {number} start @param {number} end @param {AbortSignal} signal
 */
export async function request(url, start, end, signal) {
  return new Body(await fetch(url, { headers: { Range: `bytes=${start}-${end - 1}` }, signal, cache: "no-store" }));
}

/** The size of a file by a HEAD request; NaN if the response does not say it. @param {string} url @param {AbortSignal} signal */
export async function sizeByHead(url, signal) {
  const response = await fetch(url, { method: "HEAD", signal, cache: "no-store" }).catch(() => undefined);
  return response?.ok ? Number(response.headers.get("content-length") ?? NaN) : NaN;
}

/** Allocates a buffer. @param {number} length */
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
 * Computes two sums that detect damage to a stored record. Its SHA-256 was compared when it arrived.
 *
 * Each little-endian word is mixed with its index (xor, shift, multiply; a bijection of the word) and added to the first
 * sum, then mixed once more and added to the second. The order does not matter, so a GPU can compute them too:
 * checksum.wgsl has the same constants; tests compare both with tests/support/checksums.py. The first sum starts with the
 * number of bytes. An incomplete last word is padded with zeros.
 * @param {ArrayBuffer} buffer @param {number} length bytes that count
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

/** @param {Uint32Array} words @param {number} at index of the first word */
function sums(words, at) {
  let key = Math.imul(at, 0x9e3779b1);
  let first = 0;
  let second = 0;
  for (let i = 0; i < words.length; i++) {
    let word = words[i] ^ key;
    key = (key + 0x9e3779b1) | 0;
    word = Math.imul(word ^ (word >>> 16), 0x7feb352d);
    word ^= word >>> 15;
    first = (first + word) | 0;
    word = Math.imul(word, 0x846ca68b);
    second = (second + (word ^ (word >>> 16))) | 0;
  }
  return [first, second];
}

/** Reads part of a File from disk. @param {Blob} blob @param {number} start @param {number} end */
export const slice = (blob, start, end) => blob.slice(start, end).arrayBuffer();

/** Free storage of this site, in bytes; Infinity if the browser does not say. */
export async function freeStorage() {
  const { quota, usage } = (await navigator.storage?.estimate?.()) ?? {};
  return quota === undefined || usage === undefined ? Infinity : quota - usage;
}

/** @type {Promise<IDBDatabase> | undefined} */
let opening;

/** @returns {Promise<IDBDatabase>} */
function database() {
  opening ??= new Promise((resolve, reject) => {
    const open = indexedDB.open(DATABASE, 1);
    open.onupgradeneeded = () => {
      open.result.createObjectStore(RECORDS);
      open.result.createObjectStore(MODELS, { keyPath: "url" });
    };
    open.onerror = () => reject(plainError(open.error));
    open.onsuccess = () => {
      open.result.onversionchange = open.result.onclose = () => {
        open.result.close();
        opening = undefined;
      };
      resolve(open.result);
    };
  });
  opening.catch(() => (opening = undefined));
  return opening;
}

/**
 * An Error with the same name: Pyodide does not treat Chromium's QuotaExceededError as an exception.
 * @param {DOMException | null} error
 */
const plainError = (error) => Object.assign(new Error(error?.message), { name: error?.name ?? "AbortError" });

/**
 * Runs one request in a transaction of its own. Only `onabort` reports a full disk.
 * @param {string} store @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest} send
 * @returns {Promise<any>}
 */
async function transact(store, mode, send) {
  const transaction = (await database()).transaction(store, mode, { durability: "relaxed" });
  return new Promise((resolve, reject) => {
    const sent = send(transaction.objectStore(store));
    transaction.oncomplete = () => resolve(sent.result);
    transaction.onabort = () => reject(plainError(transaction.error ?? sent.error));
  });
}

/** The keys of a model's records. @param {string} url */
const recordKeys = (url) => IDBKeyRange.bound([url], [url, []]);

/** A model's entry {url, size, etag, ranged}, or undefined. @param {string} url */
export const getModel = (url) => transact(MODELS, "readonly", (store) => store.get(url));

/** Stores a model's entry. @param {string} url @param {number} size @param {string} etag @param {boolean} ranged whether the server answers range requests */
export const putModel = (url, size, etag, ranged) =>
  transact(MODELS, "readwrite", (store) => store.put({ url, size, etag, ranged, used: Date.now() }));

/** Sets a model's time of last use to now. @param {string} url */
export async function touchModel(url) {
  const transaction = (await database()).transaction(MODELS, "readwrite", { durability: "relaxed" });
  const store = transaction.objectStore(MODELS);
  const entry = store.get(url);
  entry.onsuccess = () => entry.result && store.put({ ...entry.result, used: Date.now() });
}

/** @returns {Promise<{url: string, size: number, etag: string, used?: number}[]>} */
export const listModels = () => transact(MODELS, "readonly", (store) => store.getAll());

/** The [offset, length] of each cached record of a model. @param {string} url */
export async function listRecords(url) {
  const keys = await transact(RECORDS, "readonly", (store) => store.getAllKeys(recordKeys(url)));
  return keys.map((/** @type {any[]} */ [, offset, length]) => [offset, length]);
}

/**
 * Reads a record: its bytes, the stored SHA-256 (`sha256`), the SHA-256 of its bytes (`digest`; the stored one if the
 * checksum matches), and the milliseconds of reading and of checking. Undefined if it is absent or its file was lost.
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
  const { sha256: stored, check } = entry;
  const intact = check !== undefined && String(check) === String(checksum(buffer));
  const digest = intact ? stored : await sha256(buffer);
  if (check === undefined && digest === stored && buffer.byteLength === length) {
    await putRecord(url, offset, buffer, digest).catch(() => undefined); // disk full: hashed again next time
  }
  return { sha256: stored, digest, buffer, read: read - begun, hash: performance.now() - read };
}

/**
 * Opens cached records for upload.js, which compares their checksums. Undefined for a record that is absent, has another
 * length, no checksum, or another SHA-256 than its `hash`: getRecord() reads those.
 * @param {string} url @param {Float64Array} spans (offset, length) of each @param {(string | undefined)[]} hashes
 * @returns {(i: number) => Promise<{ data: Blob, check: number[] } | undefined>}
 */
export const cachedRecords = (url, spans, hashes) => async (i) => {
  const [offset, length] = spans.subarray(2 * i, 2 * i + 2);
  const entry = await transact(RECORDS, "readonly", (store) => store.get([url, offset, length]));
  const whole = entry?.data instanceof Blob && entry.data.size === length && entry.check;
  return whole && entry.sha256 === (hashes[i] ?? entry.sha256) ? entry : undefined;
};

/**
 * Opens parts of a File for upload.js, without checksums. @param {Blob} file @param {Float64Array} spans
 * @returns {(i: number) => Promise<{ data: Blob }>}
 */
export const fileParts = (file, spans) => async (i) => ({
  data: file.slice(spans[2 * i], spans[2 * i] + spans[2 * i + 1]),
});

/**
 * Reads bytes [start, end) of a record, unchecked. Undefined if it is absent or its file was lost.
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
 * Stores a record. Rejects with QuotaExceededError if the site's storage is full.
 * @param {string} url @param {number} offset @param {ArrayBuffer} buffer @param {string} sha256
 */
export const putRecord = (url, offset, buffer, sha256) =>
  transact(RECORDS, "readwrite", (store) =>
    store.put({ sha256, check: checksum(buffer), data: new Blob([buffer]) }, [url, offset, buffer.byteLength]),
  );

/** Deletes a record. @param {string} url @param {number} offset @param {number} length */
export const deleteRecord = (url, offset, length) =>
  transact(RECORDS, "readwrite", (store) => store.delete([url, offset, length]));

/** Deletes a model and its records. @param {string} url */
export async function deleteModel(url) {
  await transact(RECORDS, "readwrite", (store) => store.delete(recordKeys(url)));
  await transact(MODELS, "readwrite", (store) => store.delete(url));
}

/** The database of kernel choices, JSON per device and model. @returns {Promise<IDBDatabase>} */
function choicesDatabase() {
  return new Promise((resolve, reject) => {
    const open = indexedDB.open("wisp-kernels", 1);
    open.onupgradeneeded = () => open.result.createObjectStore("choices");
    open.onerror = () => reject(plainError(open.error));
    open.onsuccess = () => resolve(open.result);
  });
}

/** @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest} send @returns {Promise<any>} */
async function transactChoice(mode, send) {
  const opened = await choicesDatabase();
  try {
    return await new Promise((resolve, reject) => {
      const transaction = opened.transaction("choices", mode);
      const sent = send(transaction.objectStore("choices"));
      transaction.oncomplete = () => resolve(sent.result);
      transaction.onabort = () => reject(plainError(transaction.error ?? sent.error));
    });
  } finally {
    opened.close();
  }
}

/** The choice of kernels stored under a key, or undefined. @param {string} key */
export const getChoice = (key) => transactChoice("readonly", (store) => store.get(key));

/** Stores a choice of kernels. @param {string} key @param {string} choice JSON */
export const putChoice = (key, choice) => transactChoice("readwrite", (store) => store.put(choice, key));
