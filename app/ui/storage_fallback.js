/**
 * Where the browser lets this page store nothing ("block all cookies"), reading `localStorage` throws. The page then
 * remembers its settings until it is closed. Imported before all that reads them.
 */

/** A Storage in memory. @returns {Storage} */
function inMemory() {
  /** @type {Map<string, string>} */
  const items = new Map();
  const methods = {
    getItem: (/** @type {string} */ key) => items.get(String(key)) ?? null,
    setItem: (/** @type {string} */ key, /** @type {string} */ value) => void items.set(String(key), String(value)),
    removeItem: (/** @type {string} */ key) => void items.delete(String(key)),
    clear: () => items.clear(),
    key: (/** @type {number} */ index) => [...items.keys()][index] ?? null,
  };
  return /** @type {Storage} */ (Object.defineProperty(methods, "length", { get: () => items.size }));
}

for (const name of /** @type {const} */ (["localStorage", "sessionStorage"])) {
  try {
    void globalThis[name].length;
  } catch {
    Object.defineProperty(globalThis, name, { value: inMemory(), configurable: true });
  }
}
