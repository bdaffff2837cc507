/**
 * An IndexedDB database that is opened on first use, and again after the browser has closed it: its user removed the
 * site's data, or the disk or the browser's own process for storage failed.
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
      opening = openDB(name, version, { ...callbacks, terminated });
      opening.catch(forget); // the next use tries again
    }
    return opening;
  };
}
