/**
 * The caches of older versions. A version that takes over is used by tabs that are opened from then on; those that are open
 * go on with theirs, and load parts of it that the host may no longer have. So its cache stays until they are closed.
 */
/// <reference lib="webworker" />
const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const NOTES = new URL("older-versions", worker.registration.scope).href; // in this version's cache

/** @typedef {{ caches: string[], tabs: string[] }} Notes caches of older versions, and the ids of tabs that use them */

const windows = () => worker.clients.matchAll({ type: "window", includeUncontrolled: true });

export class Older {
  #prefix;
  #own;

  /** @param {string} prefix of the caches of all versions @param {string} own this version's cache */
  constructor(prefix, own) {
    this.#prefix = prefix;
    this.#own = own;
  }

  /** Notes which caches are older than this version: those of newer ones are not there yet. @param {Cache} cache */
  async note(cache) {
    const names = (await caches.keys()).filter((name) => name.startsWith(this.#prefix) && name !== this.#own);
    await cache.put(NOTES, Response.json({ caches: names, tabs: [] }));
  }

  /** Notes the tabs that are open when this version takes over. */
  async noteTabs() {
    const tabs = (await windows()).map(({ id }) => id);
    const cache = await caches.open(this.#own);
    const notes = Response.json({ ...(await this.#notes()), tabs });
    await cache.put(NOTES, notes).catch(() => {}); // fails where the storage is full: then they are removed
  }

  /** Removes the caches of older versions once no tab needs them. */
  async remove() {
    const { installing, waiting } = worker.registration;
    if (installing || waiting) return; // that may be one of those versions, to which the host has returned
    const notes = await this.#notes();
    const open = new Set((await windows()).map(({ id }) => id));
    if (!notes.tabs.some((id) => open.has(id))) await Promise.all(notes.caches.map((name) => caches.delete(name)));
  }

  /** Answers a request for a file that this version lacks. @param {Request} request @param {string} url */
  answer = async (request, url) => (await caches.match(url)) ?? fetch(request);

  /** @returns {Promise<Notes>} */
  async #notes() {
    const stored = await (await caches.open(this.#own)).match(NOTES);
    return stored ? stored.json() : { caches: [], tabs: [] };
  }
}
