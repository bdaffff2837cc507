/** An IndexedDB database that is opened on first use. */

export class Database {
  #name;
  #upgrade;
  /** @type {Promise<IDBDatabase> | undefined} */
  #opening;

  /** @param {string} name @param {(database: IDBDatabase) => void} upgrade creates the object stores */
  constructor(name, upgrade) {
    this.#name = name;
    this.#upgrade = upgrade;
  }

  /** @returns {Promise<IDBDatabase>} */
  #open() {
    this.#opening ??= new Promise((resolve, reject) => {
      const open = indexedDB.open(this.#name, 1);
      open.onupgradeneeded = () => this.#upgrade(open.result);
      open.onerror = () => reject(plainError(open.error));
      open.onsuccess = () => {
        open.result.onversionchange = open.result.onclose = () => {
          open.result.close();
          this.#opening = undefined;
        };
        resolve(open.result);
      };
    });
    this.#opening.catch(() => (this.#opening = undefined));
    return this.#opening;
  }

  /**
   * Runs requests in a transaction of their own; returns the result of the one that `send` returns. Only `onabort`
   * reports a full disk.
   * @param {string} store @param {IDBTransactionMode} mode @param {(store: IDBObjectStore) => IDBRequest} send
   * @returns {Promise<any>}
   */
  async transact(store, mode, send) {
    const transaction = (await this.#open()).transaction(store, mode, { durability: "relaxed" });
    return new Promise((resolve, reject) => {
      const sent = send(transaction.objectStore(store));
      transaction.oncomplete = () => resolve(sent.result);
      transaction.onabort = () => reject(plainError(transaction.error ?? sent.error));
    });
  }

  /**
   * Changes several stores at once, or none of them.
   * @param {string[]} stores @param {(store: (name: string) => IDBObjectStore) => void} send
   * @returns {Promise<void>}
   */
  async change(stores, send) {
    const transaction = (await this.#open()).transaction(stores, "readwrite");
    return new Promise((resolve, reject) => {
      send((name) => transaction.objectStore(name));
      transaction.oncomplete = () => resolve();
      transaction.onabort = () => reject(plainError(transaction.error));
    });
  }

  /** [key, value] of all records of a store, or of a range. @param {string} store @param {IDBKeyRange} [range] */
  async entries(store, range) {
    const keys = /** @type {any[]} */ ([]);
    const values = await this.transact(store, "readonly", (opened) => {
      const asked = opened.getAllKeys(range);
      asked.onsuccess = () => keys.push(...asked.result);
      return opened.getAll(range);
    });
    return keys.map((key, i) => /** @type {[any, any]} */ ([key, values[i]]));
  }
}

/**
 * An Error with the same name: Pyodide does not treat Chromium's QuotaExceededError as an exception.
 * @param {DOMException | null} error
 */
const plainError = (error) => Object.assign(new Error(error?.message), { name: error?.name ?? "AbortError" });
