/** The queue of models on their way into this browser's storage, of all tabs. */
import { absolute } from "./address.js";

/** @typedef {import("./types.d.ts").QueuedDownload} QueuedDownload */

/**
 * Goes on while any tab is open, and on a later visit from the first `list()` on. A load of a model in the queue continues
 * with what has arrived.
 */
export class DownloadQueue {
  #connection;

  /** @param {import("./connection.js").Connection} connection */
  constructor(connection) {
    this.#connection = connection;
  }

  /** @returns {Promise<QueuedDownload[]>} */
  list() {
    return this.#connection.call("downloads.list");
  }

  /**
   * Adds a model; one that is in the queue goes on.
   * @param {{ model: string | string[], name?: string, sha256?: string | string[] }} request
   * @returns {Promise<QueuedDownload>}
   */
  add({ model, ...rest }) {
    return this.#connection.call("downloads.add", { ...rest, model: absolute(model) });
  }

  /** @param {string} download the download's id @returns {Promise<void>} */
  pause(download) {
    return this.#connection.call("downloads.pause", { download });
  }

  /** Continues a download that was paused or has failed. @param {string} download @returns {Promise<void>} */
  resume(download) {
    return this.#connection.call("downloads.resume", { download });
  }

  /** Takes a download out of the queue; what is stored stays. @param {string} download @returns {Promise<void>} */
  remove(download) {
    return this.#connection.call("downloads.remove", { download });
  }

  /** @param {string} download @param {number} index its place, from 0 on @returns {Promise<void>} */
  move(download, index) {
    return this.#connection.call("downloads.move", { download, index });
  }

  /** How many run at once, also as an earlier visit has set it. @returns {Promise<number>} */
  getLimit() {
    return this.#connection.call("downloads.getLimit");
  }

  /** Sets how many run at once, 1 to 6; default: 2. @param {number} limit @returns {Promise<void>} */
  setLimit(limit) {
    return this.#connection.call("downloads.limit", { limit });
  }

  /**
   * Calls `listener` with the queue and its limit when they change, about ten times a second while something arrives.
   * @param {(downloads: QueuedDownload[], limit: number) => void} listener @returns {() => void} ends it
   */
  onChange(listener) {
    this.#connection.onQueue.add(listener);
    return () => void this.#connection.onQueue.delete(listener);
  }
}
