/** The models of the browser's storage, which lists files. */
import { setName } from "./address.js";

const NUMBER = /-\d{5}-of-(\d{5})(?=\.gguf(?:[?#]|$))/i; // of a file of a set, in its address

/**
 * The models whose files are all there, and complete. The address of any file of a set stands for all of them.
 * @param {{ id: string, url: string, complete: boolean }[]} files @returns {{ id: string, url: string }[]}
 */
export function storedModels(files) {
  /** @type {Map<string, { id: string, url: string, missing: number }>} */
  const models = new Map();
  for (const { id, url, complete } of files) {
    const key = url.replace(NUMBER, "-of-$1");
    const model = models.get(key) ?? { id: setName(id), url, missing: Number(url.match(NUMBER)?.[1] ?? 1) };
    models.set(key, { ...model, missing: model.missing - Number(complete) });
  }
  return [...models.values()].filter(({ missing }) => !missing).map(({ id, url }) => ({ id, url }));
}
