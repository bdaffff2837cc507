/** The models of the browser's storage, which lists files. */
import { setName } from "./address.js";

/**
 * The models whose stored files are complete. The address of any file of a set stands for all of them.
 * @param {{ id: string, url: string, complete: boolean }[]} files @returns {{ id: string, url: string }[]}
 */
export function storedModels(files) {
  const named = files.map(({ id, url, complete }) => ({ id: setName(id), url, complete }));
  const isFirst = (/** @type {string} */ name, /** @type {number} */ at) =>
    named.findIndex(({ id }) => id === name) === at;
  return named
    .filter(({ id }, at) => isFirst(id, at) && named.every((other) => other.id !== id || other.complete))
    .map(({ id, url }) => ({ id, url }));
}
