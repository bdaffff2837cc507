/** Space for what cannot be had again, such as chats: where the storage is full, the prompt cache is removed first. */
import { isFull } from "./failures.js";

/** @type {() => Promise<boolean>} */
let free = async () => false;

/** Sets what frees space; it tells whether it has freed any. @param {() => Promise<boolean>} making */
export const makeSpaceBy = (making) => void (free = making);

/** Runs a write; if there is no space for it, frees some and runs it once more. @template T @param {() => Promise<T>} write @returns {Promise<T>} */
export async function withSpace(write) {
  try {
    return await write();
  } catch (error) {
    const freed = isFull(error) && (await free().catch(() => false));
    if (!freed) throw error;
    return write();
  }
}
