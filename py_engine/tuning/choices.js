/** The kernels that were chosen by measuring, JSON per device and model, in IndexedDB. */

import { Database } from "../files/indexed_db.js";

const database = new Database("wisp-kernels", (database) => database.createObjectStore("choices"));

/** The choice of kernels stored under a key, or undefined. @param {string} key */
export const getChoice = (key) => database.transact("choices", "readonly", (store) => store.get(key));

/** Stores a choice of kernels. @param {string} key @param {string} choice JSON */
export const putChoice = (key, choice) => database.transact("choices", "readwrite", (store) => store.put(choice, key));
