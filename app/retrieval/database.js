/** Documents and their passages in IndexedDB: text, place in the document, and the vector with its model's name. */
import { notStored } from "../storage/failures.js";
import { reopened } from "../storage/reopened.js";
import { withSpace } from "../storage/space.js";

/**
 * @typedef {import("./split.js").Passage} Passage
 *
 * @typedef {object} Document
 * @property {string} id
 * @property {string} name of the file
 * @property {number} size in bytes
 * @property {number} added ms since 1970
 * @property {number} [pages]
 * @property {number} passages their count
 * @property {string | null} model that made its vectors; null: it has none
 *
 * @typedef {Passage & { document: string, order: number, vector?: Float32Array }} StoredPassage `document`: its id
 */

const opened = reopened("wisp-documents", 1, {
  upgrade(db) {
    db.createObjectStore("documents", { keyPath: "id" });
    db.createObjectStore("passages", { keyPath: ["document", "order"] });
  },
});

/** The key range of a document's passages. @param {string} id */
const passagesOf = (id) => IDBKeyRange.bound([id], [id, []]);

/**
 * Reads everything.
 * @returns {Promise<{ documents: Document[], passages: StoredPassage[] }>} documents in the order of their addition
 */
export async function readAll() {
  const db = await opened();
  const [documents, passages] = await Promise.all([db.getAll("documents"), db.getAll("passages")]);
  return { documents: documents.sort((a, b) => a.added - b.added), passages };
}

/**
 * Runs writes in one transaction. Rejects with an error for the user where storage is full or fails.
 * @param {(documents: any, passages: any) => unknown} write gets the object stores
 */
const change = (write) =>
  withSpace(() => changed(write)).catch((error) => {
    throw notStored(error);
  });

/** @param {(documents: any, passages: any) => unknown} write */
async function changed(write) {
  /** @type {import("idb").IDBPTransaction<any, any, "readwrite"> | undefined} */
  let transaction;
  try {
    transaction = (await opened()).transaction(["documents", "passages"], "readwrite");
    transaction.done.catch(() => {});
    await write(transaction.objectStore("documents"), transaction.objectStore("passages"));
    await transaction.done;
  } catch (error) {
    try {
      transaction?.abort(); // else what came before is committed
    } catch {
      // A write that failed has aborted it.
    }
    throw transaction?.error ?? error; // the writes after it only tell that they were aborted
  }
}

/**
 * Removes documents with their passages, and stores others, all in one transaction.
 * @param {string[]} removed ids @param {Document[]} added @param {StoredPassage[]} passages of the added ones
 */
export const replaceDocuments = (removed, added, passages) =>
  change(async (documents, store) => {
    await Promise.all([
      ...removed.flatMap((id) => [documents.delete(id), store.delete(passagesOf(id))]),
      ...added.map((document) => documents.put(document)),
      ...passages.map((passage) => store.put(passage)),
    ]);
  });

/**
 * Stores the vectors of a document's passages; does nothing if the document was deleted.
 * @param {string} id @param {string} model @param {Float32Array[]} vectors in the passages' order
 */
export const storeVectors = (id, model, vectors) =>
  change(async (documents, store) => {
    const document = await documents.get(id);
    if (!document) return;
    const passages = await store.getAll(passagesOf(id));
    await Promise.all([
      documents.put({ ...document, model }),
      ...passages.map((/** @type {StoredPassage} */ passage, /** @type {number} */ i) =>
        store.put({ ...passage, vector: vectors[i] }),
      ),
    ]);
  });
