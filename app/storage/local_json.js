/**
 * JSON in localStorage. It may be damaged, or of another version of the page: what is of another kind counts as absent, so
 * that the page starts with what is left.
 */

/** @param {unknown} value @returns {value is Record<string, any>} */
export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);

/** @param {unknown} value @returns {value is string} */
export const isText = (value) => typeof value === "string";

/** @param {string} key @returns {Record<string, any>} */
export function storedObject(key) {
  const found = parsed(key);
  return isObject(found) ? found : {};
}

/** @template T @param {string} key @param {(value: unknown) => value is T} isItem @returns {T[]} the items that are one */
export function storedList(key, isItem) {
  const found = parsed(key);
  return Array.isArray(found) ? found.filter(isItem) : [];
}

/** @param {string} key @returns {unknown} */
function parsed(key) {
  try {
    return JSON.parse(localStorage.getItem(key) ?? "null");
  } catch {
    return null;
  }
}
