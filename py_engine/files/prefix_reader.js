/**
 * Reads stored blocks one after the other. Each file takes a call to the browser's own process to open, so some are
 * opened ahead; and their bytes come into one buffer, because allocating one takes longer than reading into it.
 */
import { xxHash } from "./file_hash.js";
import { folderOf, removePrefixes } from "./prefix_database.js";

/** @typedef {{ getSize(): number, read(into: Uint8Array, options: { at: number }): number, close(): void }} SyncAccess  lib.dom has it in workers only */

const OPEN_AHEAD = 16; // files that are opened ahead

/**
 * Opens a block's file. Another worker that writes it has it alone, and in some browsers one that reads it: then it is
 * read as a Blob, several times as slowly. So it is in a shared worker, which has no synchronous access at all.
 * @param {string} layout @param {string} key @returns {Promise<SyncAccess | File>}
 */
async function open(layout, key) {
  const handle = /** @type {any} */ (await (await folderOf(layout)).getFileHandle(key));
  if (!handle.createSyncAccessHandle) return handle.getFile();
  return handle.createSyncAccessHandle({ mode: "read-only" }).catch(() => handle.getFile());
}

export class PrefixReader {
  #layout;
  #blocks;
  /** @type {Promise<SyncAccess | File>[]} */
  #files = [];
  #next = 0;
  #buffer = new ArrayBuffer(0);

  /** @param {string} layout @param {[string, string][]} blocks key and xxHash64 of each */
  constructor(layout, blocks) {
    this.#layout = layout;
    this.#blocks = blocks;
  }

  /**
   * The next block's bytes, until the call after this one. Undefined, and the block is removed, if they are missing or
   * damaged.
   * @returns {Promise<ArrayBuffer | undefined>}
   */
  async next() {
    const { length } = this.#files;
    for (const [key] of this.#blocks.slice(length, this.#next + OPEN_AHEAD)) {
      const file = open(this.#layout, key);
      file.catch(() => {}); // reported where it is read
      this.#files.push(file);
    }
    const [key, digest] = this.#blocks[this.#next];
    try {
      const data = await this.#read(await this.#files[this.#next++]);
      if ((await xxHash(data)) === digest) return data;
    } catch {
      // the file is missing or cannot be read
    }
    await removePrefixes([[this.#layout, key]]).catch(() => {});
    return undefined;
  }

  /** @param {SyncAccess | File} file */
  async #read(file) {
    if (file instanceof Blob) return file.arrayBuffer();
    try {
      const size = file.getSize();
      if (this.#buffer.byteLength !== size) this.#buffer = new ArrayBuffer(size);
      file.read(new Uint8Array(this.#buffer), { at: 0 });
      return this.#buffer;
    } finally {
      file.close();
    }
  }

  /** Closes the files that were opened ahead. */
  close() {
    for (const file of this.#files.slice(this.#next))
      file.then(
        (opened) => opened instanceof Blob || opened.close(),
        () => {},
      );
  }
}
