/**
 * An IndexedDB database that is opened on first use, and again after the browser has closed it: its user removed the
 * site's data, or the disk or the browser's own process for storage failed. A newer version of the page gets it at once;
 * then it does not open any more.
 */
import { openDB } from "idb";

/**
 * @param {string} name @param {number} version
 * @param {import("idb").OpenDBCallbacks<any>} callbacks @returns {() => Promise<import("idb").IDBPDatabase<any>>}
 */
export function reopened(name, version, callbacks) {
  /** @type {Promise<import("idb").IDBPDatabase<any>> | undefined} */
  let opening;
  const forget = () => (opening = undefined);
  return () => {
    if (!opening) {
      const terminated = () => {
        forget();
        callbacks.terminated?.();
      };
      /** @param {number} current @param {number | null} next null: it is deleted @param {IDBVersionChangeEvent} event */
      const blocking = (current, next, event) => {
        if (next !== null) callbacks.blocking?.(current, next, event);
        /** @type {IDBDatabase} */ (event.target).close(); // when what `blocking` has written is stored
        if (next === null) terminated();
        else forget();
      };
      opening = openDB(name, version, { ...callbacks, terminated, blocking });
      opening.catch(forget); // the next use tries again
    }
    return opening;
  };
}
