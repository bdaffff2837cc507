/** A record that is being downloaded. What is computed of its bytes is computed in the thread that downloads them. */

import { sha256 } from "./buffers.js";
import { checksum } from "./checksum.js";
import { Body, request } from "./http.js";
import { putPart } from "./parts_database.js";

/**
 * @typedef {import("./background_store.js").Entry} Entry
 * @typedef {(bytes: number) => void} OnBytes
 */

export class Incoming {
  /** @param {number} length */
  constructor(length) {
    this.buffer = new ArrayBuffer(length);
  }

  /** Copies `length` bytes of `from`, from `start` on, to `at`. @param {ArrayBuffer} from @param {number} start @param {number} at @param {number} length */
  copy(from, start, at, length) {
    new Uint8Array(this.buffer).set(new Uint8Array(from, start, length), at);
  }

  /** http.js's request(). @param {string} url @param {number} start @param {number} end @param {AbortSignal} signal @param {Record<string, string>} [authorized] */
  request(url, start, end, signal, authorized) {
    return request(url, start, end, signal, authorized);
  }

  /** Whether this record can be filled from a response. @param {unknown} body */
  reads = (body) => body instanceof Body;

  /** Body.fill() into this record. @param {Body} body @param {number} at @param {number} end @param {OnBytes} onBytes */
  fill(body, at, end, onBytes) {
    return body.fill(this.buffer, at, end, onBytes);
  }

  /** Stores bytes [start, end) of a file, which are at `at`, until the record is complete. @param {string} url @param {number} at @param {number} start @param {number} end */
  keep(url, at, start, end) {
    return putPart(url, start, end, this.buffer.slice(at, at + end - start));
  }

  /** The bytes, which must be complete, and their entry in the cache. @returns {Promise<{ buffer: ArrayBuffer, entry: Entry }>} */
  finish() {
    return finished(this.buffer);
  }

  /** Gives the record up. */
  discard() {}
}

/** A record's bytes, and its entry in the cache. @param {ArrayBuffer} buffer @returns {Promise<{ buffer: ArrayBuffer, entry: Entry }>} */
export async function finished(buffer) {
  const hashing = sha256(buffer); // the browser hashes in a thread of its own
  const check = checksum(buffer);
  return { buffer, entry: { sha256: await hashing, check, data: new Blob([buffer]) } };
}
