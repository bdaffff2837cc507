/**
 * Measures how fast a model comes from a server into IndexedDB, with builds of Wisp by turns in one page.
 *
 * @typedef {object} Asked
 * @property {Record<string, string>} builds addresses of copies of dist/, by name
 * @property {string} model address
 * @property {boolean} load whether the model is loaded, too; else only downloaded
 * @property {number} rounds
 * @property {Record<string, unknown>} options of load()
 *
 * @typedef {{ ready: number | null, stored: number, rate: number }} Row  seconds until the model is ready, and until all
 *   of it is stored; bytes a second until then
 */

const POLL_MS = 100;

/** @param {Asked} asked @param {(found: Record<string, Row[]>) => void} onRow @returns {Promise<Record<string, Row[]>>} rows by build */
export async function measureCache(asked, onRow = () => {}) {
  /** @type {Record<string, any>} */
  const engines = {};
  for (const [name, address] of Object.entries(asked.builds)) {
    const { Wisp } = await import(`${address}/wisp.js`);
    engines[name] = await Wisp.create({ shared: false });
  }
  const size = Number((await fetch(asked.model, { method: "HEAD" })).headers.get("content-length"));
  /** @type {Record<string, Row[]>} */
  const found = {};
  for (let round = 0; round < asked.rounds; round++) {
    const order = Object.entries(engines);
    for (const [name, engine] of round % 2 ? order.reverse() : order) {
      const model = `${asked.model}?${name}=${round}`;
      const begun = performance.now();
      const seconds = () => (performance.now() - begun) / 1000;
      let ready = null;
      if (asked.load) {
        await engine.load({ model, ...asked.options });
        ready = seconds();
      } else await engine.downloads.add({ model });
      while ((await storedBytes(model)) < size) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
      const stored = seconds();
      (found[name] ??= []).push({ ready, stored, rate: size / stored });
      onRow(found);
      if (asked.load) await engine.unload();
      else for (const { id } of await engine.downloads.list()) await engine.downloads.remove(id);
      await engine.models.delete(model);
    }
  }
  return found;
}

/** Bytes of a model's records in the database itself: Wisp also counts those that wait. @param {string} url */
async function storedBytes(url) {
  const database = await new Promise((resolve, reject) => {
    const opening = indexedDB.open("wisp-models", 1);
    opening.onupgradeneeded = () => opening.transaction?.abort(); // the engine creates it
    opening.onsuccess = () => resolve(opening.result);
    opening.onerror = () => (opening.error?.name === "AbortError" ? resolve(undefined) : reject(opening.error));
  });
  if (!database) return 0;
  const asked = database
    .transaction("records")
    .objectStore("records")
    .getAllKeys(IDBKeyRange.bound([url], [url, []]));
  await new Promise((resolve, reject) => {
    asked.onsuccess = resolve;
    asked.onerror = reject;
  });
  database.close();
  return asked.result.reduce((/** @type {number} */ sum, /** @type {any} */ key) => sum + key[2], 0);
}
