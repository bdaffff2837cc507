/** Space for what cannot be had again, such as chats: where the storage is full, the prompt cache is removed first. */
import { isFull } from "./failures.js";

const MOST_MS = 5000; // a page asks its engine, which may never start: the write must not wait for that

/** @type {() => Promise<boolean>} */
let free = async () => false;

/** Sets what frees space; it tells whether it has freed any. @param {() => Promise<boolean>} making */
export const makeSpaceBy = (making) => void (free = making);

/** Runs a write; if there is no space for it, frees some and runs it once more. @template T @param {() => Promise<T>} write @returns {Promise<T>} */
export async function withSpace(write) {
  try {
    return await write();
  } catch (error) {
    const inVain = new Promise((resolve) => setTimeout(resolve, MOST_MS, false));
    const freed = isFull(error) && (await Promise.race([free().catch(() => false), inVain]));
    if (!freed) throw error;
    return write();
  }
}
