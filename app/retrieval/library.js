/**
 * The user's documents, and the search for passages that answer a question. `Library` is the entry point.
 *
 * read.js (text, Markdown, PDF by pdf.js and lines.js) -> split.js (passages) -> database.js (IndexedDB)
 * -> embedder.js (vectors) -> search.js (BM25 and cosine, fused) -> prompt.js (the message, and the citations).
 *
 * May know: files, text, the page's language, IndexedDB, and the SDK for embeddings and token counts.
 * Must not know: the page's elements (app/ui shows documents and answers), the worker's messages, GPU, tensors.
 */
import { t } from "../language/phrase.js";
import { Embedder } from "./embedder.js";
import { addDocument, readAll, removeDocument, storeVectors } from "./database.js";
import { read } from "./read.js";
import { Lexical, search } from "./search.js";
import { split } from "./split.js";

/**
 * @typedef {import("./database.js").Document} Document
 * @typedef {import("./database.js").StoredPassage} StoredPassage
 * @typedef {import("./prompt.js").Source} Source
 *
 * @typedef {object} Parts
 * @property {() => Promise<import("../wisp.js").Wisp>} wisp
 * @property {() => Promise<import("./read.js").ReadPdf>} pdf
 * @property {() => void} changed called when the documents, the model or the work in progress changed
 */

const SIZE = 200; // tokens a passage, for embedding models with short inputs and chats with small contexts
const OVERLAP = 40; // tokens that consecutive passages share

export class Library {
  /** @type {Document[]} */
  documents = [];
  /** @type {StoredPassage[]} */
  passages = [];
  /** @type {Map<string, import("../language/phrase.js").Phrase>} work in progress: a document's id or a file's name -> its description */
  busy = new Map();
  /** @type {string | null} why the last use of the embedding model failed */
  trouble = null;
  /** @type {Promise<Lexical> | null} built when it is needed */
  #lexical = null;
  #channel = new BroadcastChannel("wisp-documents");
  /** @type {Promise<unknown>} the last of the tasks that run one after another */
  #working = Promise.resolve();

  /** @param {Parts} parts */
  constructor(parts) {
    this.parts = parts;
    this.embedder = new Embedder(parts.wisp);
    this.#channel.onmessage = () => this.open(); // another tab changed them
  }

  /** Reads the stored documents. */
  async open() {
    Object.assign(this, await readAll());
    this.#lexical = null;
    this.parts.changed();
  }

  /**
   * Adds a file; rejects with an error for the user if it cannot be read.
   * @param {File} file @returns {Promise<void>}
   */
  add(file) {
    return this.#enqueue(file.name, t("Waiting …"), async (say) => {
      say(t("Reading …"));
      const { blocks, pages } = await read(file, this.parts.pdf);
      const passages = await split(blocks, { size: SIZE, overlap: OVERLAP, count: (text) => this.#count(text) });
      const about = { id: crypto.randomUUID(), name: file.name, size: file.size, added: Date.now() };
      const before = this.documents.filter(({ name }) => name === file.name); // replaced by this version
      await addDocument({ ...about, ...(pages ? { pages } : {}) }, passages);
      for (const { id } of before) await removeDocument(id);
      await this.#changed();
      await this.#embed(say).catch((error) => this.#searchByWords(error)); // BM25 still finds it
    });
  }

  /** @param {string} id */
  async remove(id) {
    await removeDocument(id);
    await this.#changed();
  }

  /**
   * Sets the embedding model, or none, and embeds every document again.
   * @param {import("./embedder.js").Chosen | null} chosen
   */
  choose(chosen) {
    return this.#enqueue("", t("Loading the model …"), async (say) => {
      if (chosen) await this.embedder.choose(chosen);
      else this.embedder.forget();
      this.trouble = null;
      await this.#embed(say);
    });
  }

  /** The best passages for a question. @param {string} question @param {number} most @returns {Promise<Source[]>} */
  async search(question, most) {
    const { id } = this.embedder;
    const { passages } = this; // all of it as it is now: documents may come, go and be embedded again meanwhile
    this.#lexical ??= Lexical.of(passages.map(indexedText));
    const lexical = this.#lexical;
    const current = new Set(this.documents.filter(({ model }) => id && model === id).map((document) => document.id));
    const names = new Map(this.documents.map((document) => [document.id, document.name]));
    const vectors = passages.map(({ document, vector }) => (current.has(document) ? vector : undefined));
    const query = current.size
      ? await this.embedder.embed([question]).catch((error) => this.#searchByWords(error))
      : null;
    const meaning = query ? { query: query[0], vectors } : null;
    return search(await lexical, question, meaning, most).map(({ index }) => {
      const { document, text, heading, page } = passages[index];
      return { document: names.get(document) ?? "", text, ...(heading ? { heading } : {}), ...(page ? { page } : {}) };
    });
  }

  /** @param {string} text */
  async #count(text) {
    try {
      return await this.embedder.count(text);
    } catch {
      return Math.ceil(text.length / 3); // no model is loaded: a high estimate
    }
  }

  /** Embeds the documents whose vectors are not the current model's. @param {(what: import("../language/phrase.js").Phrase) => void} say */
  async #embed(say) {
    const { id } = this.embedder;
    if (!id) return;
    for (const document of this.documents.filter(({ model }) => model !== id)) {
      const passages = this.passages.filter((passage) => passage.document === document.id);
      const n = passages.length;
      const report = (/** @type {number} */ done) => say(t("Embedding {done} of {n} passages …", { done, n }));
      report(0);
      const vectors = await this.embedder.embed(passages.map(indexedText), report);
      await storeVectors(document.id, id, vectors);
      await this.#changed();
    }
  }

  /** Notes why the embedding model failed; search continues with words alone. @param {any} error @returns {null} */
  #searchByWords(error) {
    this.trouble = `${this.embedder.id}: ${error?.message ?? error}`;
    this.parts.changed();
    return null;
  }

  /** Reads the documents again, here and in other tabs. */
  async #changed() {
    await this.open();
    this.#channel.postMessage("changed");
  }

  /**
   * Runs work after the tasks before it.
   * @param {string} key @param {import("../language/phrase.js").Phrase} what
   * @param {(say: (what: import("../language/phrase.js").Phrase) => void) => Promise<void>} work
   */
  #enqueue(key, what, work) {
    const say = (/** @type {typeof what} */ now) => {
      this.busy.set(key, now);
      this.parts.changed();
    };
    say(what);
    const done = this.#working.then(() => work(say));
    this.#working = done.catch(() => {});
    return done.finally(() => {
      this.busy.delete(key);
      this.parts.changed();
    });
  }
}

/** The text of a passage that is indexed and embedded. @param {StoredPassage} passage */
const indexedText = ({ heading, text }) => (heading ? `${heading}\n${text}` : text);
