/**
 * Stores records in the background: a load does not wait for the disk.
 *
 * A record that is not stored yet is a Blob. The browser keeps a Blob's bytes outside this worker's memory, and moves them
 * to a temporary file where they are many.
 */

/** @typedef {{ sha256: string, check?: number[], data: Blob }} Entry */
/** @typedef {{ url: string, offset: number, entry: Entry, alone: boolean }} Waiting  `alone`: not stored with others */

// Records of one transaction. The browser writes a transaction's Blobs at once, 32 KiB of each at a time, but transactions
// of one object store one after the other.
const RECORDS_AT_ONCE = 8;
const { deviceMemory = 4 } = /** @type {{ deviceMemory?: number }} */ (navigator); // GiB
const LIMIT = (2 ** 30 * deviceMemory) / 4; // bytes that may wait: at most 2 GiB, as browsers report 8 GiB at most

export class BackgroundStore {
  #store;
  /** @type {Map<string, Waiting>} by its key, in the order of arrival */
  #waiting = new Map();
  #bytes = 0; // of the records that wait
  #storing = false;
  /** @type {Map<string, Error>} why a model's records are not stored at present, by URL */
  #errors = new Map();
  /** @type {(() => void)[]} called when a record was stored or given up */
  #listeners = [];

  /** @param {(records: Waiting[]) => Promise<unknown>} store stores all of them or, if it rejects, none */
  constructor(store) {
    this.#store = store;
  }

  /**
   * Adds a record. Returns when there is room for another one.
   * @param {string} url @param {number} offset @param {Entry} entry
   */
  async add(url, offset, entry) {
    this.drop(url, offset);
    this.#waiting.set(key(url, offset), { url, offset, entry, alone: false });
    this.#bytes += entry.data.size;
    this.#run();
    while (this.#bytes > LIMIT && !this.#errors.has(url)) await this.#change();
  }

  /** The record at an offset, if it waits. @param {string} url @param {number} offset @returns {Entry | undefined} */
  find = (url, offset) => this.#waiting.get(key(url, offset))?.entry;

  /** The records of a model that wait. @param {string} url */
  of = (url) => [...this.#waiting.values()].filter((waiting) => waiting.url === url);

  /** Waits until all records of a model are stored. Rejects where one cannot be. @param {string} url */
  async stored(url) {
    while (!this.#errors.has(url) && this.of(url).length) await this.#change();
    const error = this.#errors.get(url);
    if (error) throw error;
  }

  /** Tries again to store a model's records. @param {string} url */
  retry(url) {
    this.#errors.delete(url);
    for (const waiting of this.of(url)) waiting.alone = false;
    this.#run();
  }

  /** Gives up the records of a model that wait, or one of them. @param {string} url @param {number} [offset] */
  drop(url, offset) {
    for (const waiting of this.of(url)) if (waiting.offset === (offset ?? waiting.offset)) this.#remove(waiting);
    if (offset === undefined) this.#errors.delete(url);
  }

  #run() {
    const able = [...this.#waiting.values()].filter(({ url }) => !this.#errors.has(url));
    if (this.#storing || !able.length) return;
    this.#put(able[0].alone ? able.slice(0, 1) : able.filter(({ alone }) => !alone).slice(0, RECORDS_AT_ONCE));
  }

  /** @param {Waiting[]} records */
  async #put(records) {
    this.#storing = true;
    try {
      await this.#store(records);
      records.forEach((waiting) => this.#remove(waiting));
    } catch (/** @type {any} */ error) {
      if (records.length === 1) await this.#fail(records[0], error);
      else for (const waiting of records) waiting.alone = true; // each may be the reason
    }
    this.#storing = false;
    this.#run();
  }

  /** @param {Waiting} waiting @param {Error} error */
  async #fail(waiting, error) {
    const { url, offset, entry } = waiting;
    if (error.name !== "QuotaExceededError" && !(await readable(entry.data))) this.#remove(waiting);
    else if (this.find(url, offset) === entry) this.#errors.set(url, error);
    this.#notify();
  }

  /** @param {Waiting} waiting */
  #remove(waiting) {
    const { url, offset, entry } = waiting;
    if (this.find(url, offset) !== entry) return;
    this.#waiting.delete(key(url, offset));
    this.#bytes -= entry.data.size;
    this.#notify();
  }

  #change() {
    return /** @type {Promise<void>} */ (new Promise((resolve) => this.#listeners.push(resolve)));
  }

  #notify() {
    for (const listener of this.#listeners.splice(0)) listener();
  }
}

/**
 * Whether a Blob's bytes are there. They are lost if the page whose worker made it closes before the browser has them;
 * the record is then downloaded again when it is needed. @param {Blob} data
 */
const readable = (data) =>
  data
    .slice(0, 1)
    .arrayBuffer()
    .then(
      () => true,
      () => false,
    );

/** @param {string} url @param {number} offset */
const key = (url, offset) => `${offset} ${url}`;
