/** Documents and their passages in IndexedDB: text, place in the document, and the vector with its model's name. */
import { openDB } from "idb";

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

const opened = openDB("wisp-documents", 1, {
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
  const db = await opened;
  const [documents, passages] = await Promise.all([db.getAll("documents"), db.getAll("passages")]);
  return { documents: documents.sort((a, b) => a.added - b.added), passages };
}

/**
 * Stores a document.
 * @param {Omit<Document, "passages" | "model">} about @param {Passage[]} passages @returns {Promise<Document>}
 */
export async function addDocument(about, passages) {
  const document = { ...about, passages: passages.length, model: null };
  const transaction = (await opened).transaction(["documents", "passages"], "readwrite");
  transaction.objectStore("documents").put(document);
  const store = transaction.objectStore("passages");
  passages.forEach((passage, order) => store.put({ ...passage, document: about.id, order }));
  await transaction.done;
  return document;
}

/** Deletes a document and its passages. @param {string} id */
export async function removeDocument(id) {
  const transaction = (await opened).transaction(["documents", "passages"], "readwrite");
  transaction.objectStore("documents").delete(id);
  transaction.objectStore("passages").delete(passagesOf(id));
  await transaction.done;
}

/**
 * Stores the vectors of a document's passages; does nothing if the document was deleted.
 * @param {string} id @param {string} model @param {Float32Array[]} vectors in the passages' order
 */
export async function storeVectors(id, model, vectors) {
  const transaction = (await opened).transaction(["documents", "passages"], "readwrite");
  const documents = transaction.objectStore("documents");
  const store = transaction.objectStore("passages");
  const document = await documents.get(id);
  if (document) {
    documents.put({ ...document, model });
    const passages = await store.getAll(passagesOf(id));
    passages.forEach((passage, i) => store.put({ ...passage, vector: vectors[i] }));
  }
  await transaction.done;
}
