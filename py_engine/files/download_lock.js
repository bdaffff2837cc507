/**
 * The Web Lock of a file that is downloaded. Several engines may have the same file on their way: those of two versions of
 * the page, or of two tabs where no worker is shared. One of them downloads it. The browser releases the lock of a worker
 * that ends.
 */

const locks = globalThis.navigator?.locks; // none on a page from plain http
const nameOf = (/** @type {string} */ url) => `wisp.download ${url}`;

/** Whether an engine, this one or another, downloads a file. @param {string} url @returns {Promise<boolean>} */
export async function isDownloading(url) {
  const { held = [] } = (await locks?.query().catch(() => undefined)) ?? {};
  return held.some(({ name }) => name === nameOf(url));
}

export class DownloadLock {
  #name;
  #over = new AbortController();
  #end = () => {};
  /** @type {Promise<boolean> | undefined} */
  #asking;

  /** @param {string} url of the file */
  constructor(url) {
    this.#name = nameOf(url);
  }

  /** Asks for the lock; returns whether it is held by now, after some milliseconds at most. @param {number} ms @returns {Promise<boolean>} */
  within(ms) {
    this.#asking ??= this.#ask();
    return Promise.race([this.#asking, new Promise((resolve) => setTimeout(resolve, ms, false))]);
  }

  /** Whoever asked next may have it. */
  release() {
    this.#over.abort();
    this.#end();
  }

  /** Where the browser refuses locks, the file is downloaded without one. @returns {Promise<boolean>} */
  #ask() {
    if (!locks) return Promise.resolve(true);
    const { signal } = this.#over;
    return new Promise((resolve) => {
      const hold = () => {
        resolve(true);
        return /** @type {Promise<void>} */ (new Promise((end) => (this.#end = end)));
      };
      locks.request(this.#name, { signal }, hold).catch(() => resolve(true));
    });
  }
}
