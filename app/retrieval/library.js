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
import { withSignal } from "../sdk/with_signal.js";
import { Embedder } from "./embedder.js";
import { readAll, replaceDocuments, storeVectors } from "./database.js";
import { read } from "./read.js";
import { Lexical, search } from "./search.js";
import { split } from "./split.js";

/**
 * @typedef {import("../language/phrase.js").Phrase} Phrase
 * @typedef {import("./database.js").Document} Document
 * @typedef {import("./database.js").StoredPassage} StoredPassage
 * @typedef {import("./prompt.js").Source} Source
 *
 * @typedef {object} Parts
 * @property {() => Promise<import("../wisp.js").Wisp>} wisp
 * @property {() => Promise<import("./read.js").ReadPdf>} pdf
 * @property {() => void} changed called when the documents, the model or the work in progress changed
 *
 * @typedef {object} Job work that waits or runs
 * @property {string} id of the document that it makes
 * @property {File | null} file null: the documents are embedded
 * @property {Phrase} state
 * @property {AbortController} controller
 * @property {Promise<void>} done rejects with an AbortError if it is cancelled
 */

const SIZE = 200; // tokens a passage, for embedding models with short inputs and chats with small contexts
const OVERLAP = 40; // tokens that consecutive passages share

export class Library {
  /** @type {Document[]} */
  documents = [];
  /** @type {StoredPassage[]} */
  passages = [];
  /** @type {Set<Job>} in the order in which they run */
  jobs = new Set();
  /** @type {string | null} why the last use of the embedding model failed */
  trouble = null;
  /** @type {Promise<Lexical> | null} built when it is needed */
  #lexical = null;
  #channel = new BroadcastChannel("wisp-documents");
  /** @type {Promise<unknown>} settles once all jobs have ended */
  #working = Promise.resolve();
  /** @type {Map<string, AbortController>} the document whose passages are being embedded -> aborted if it is removed */
  #embedding = new Map();

  /** @param {Parts} parts */
  constructor(parts) {
    this.parts = parts;
    this.embedder = new Embedder(parts.wisp);
    this.#channel.onmessage = () => this.open(); // another tab changed them
  }

  /** Reads the stored documents. Stops embedding those that another tab removed. */
  async open() {
    Object.assign(this, await readAll());
    const ids = new Set(this.documents.map(({ id }) => id));
    for (const [id, removed] of this.#embedding) if (!ids.has(id)) removed.abort();
    this.#lexical = null;
    this.parts.changed();
  }

  /**
   * Adds a file, in place of documents of its name. Rejects with an error for the user if it cannot be read, and with an
   * AbortError if it is cancelled: then nothing of it is stored, and what it would have replaced is as before.
   * @param {File} file @returns {Promise<void>}
   */
  add(file) {
    const same = [...this.jobs].find(
      ({ file: other, controller }) => other && isSame(other, file) && !controller.signal.aborted,
    );
    if (same) return same.done;
    return this.#enqueue(file, t("Waiting …"), async (job, say) => {
      const { signal } = job.controller;
      say(t("Reading …"));
      const { blocks, pages } = await read(file, this.parts.pdf, signal);
      const found = await split(blocks, { size: SIZE, overlap: OVERLAP, signal, count: (text) => this.#count(text) });
      const about = { id: job.id, name: file.name, size: file.size, added: Date.now(), ...(pages ? { pages } : {}) };
      const document = { ...about, passages: found.length, model: null };
      const passages = found.map((passage, order) => ({ ...passage, document: job.id, order }));
      const replaced = this.documents.filter(({ name }) => name === file.name);
      const ids = new Set(replaced.map(({ id }) => id));
      const before = this.passages.filter((passage) => ids.has(passage.document));
      await replaceDocuments([...ids], [document], passages);
      try {
        await this.#changed();
        await this.#embed(document, say, signal);
        signal.throwIfAborted();
      } catch (/** @type {any} */ error) {
        if (!signal.aborted && error.name !== "AbortError")
          this.#searchByWords(error); // BM25 still finds it
        else {
          await replaceDocuments([job.id], signal.aborted ? replaced : [], signal.aborted ? before : []);
          await this.#changed();
          throw error;
        }
      }
      this.#embedOthers();
    });
  }

  /** Ends a job, whether it waits or runs. @param {Job} job */
  cancel(job) {
    job.controller.abort();
  }

  /** @param {string} id */
  async remove(id) {
    await replaceDocuments([id], [], []);
    await this.#changed();
  }

  /**
   * Sets the embedding model, or none, and embeds every document again. If it is cancelled while the model loads, the
   * model before stays; later, documents that have no vectors yet are found by words.
   * @param {import("./embedder.js").Chosen | null} chosen
   */
  choose(chosen) {
    return this.#enqueue(null, t("Loading the model …"), async (job, say) => {
      if (chosen) await this.embedder.choose(chosen, job.controller.signal);
      else this.embedder.forget();
      this.trouble = null;
      await this.#embedAll(job, say);
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

  /** Whether a document's vectors are not the current model's. @param {Document} document */
  #isToEmbed({ model }) {
    return this.embedder.id !== null && model !== this.embedder.id;
  }

  /**
   * Embeds a document's passages. Rejects with an AbortError if it is cancelled, or if the document is removed.
   * @param {Document} document @param {(what: Phrase) => void} say @param {AbortSignal} signal
   */
  async #embed(document, say, signal) {
    const { id } = this.embedder;
    if (!id) return;
    const removed = new AbortController();
    if (!this.documents.some((other) => other.id === document.id)) removed.abort();
    this.#embedding.set(document.id, removed);
    try {
      const passages = this.passages.filter((passage) => passage.document === document.id);
      const n = passages.length;
      const report = (/** @type {number} */ done) => say(t("Embedding {done} of {n} passages …", { done, n }));
      report(0);
      const ended = AbortSignal.any([signal, removed.signal]);
      const vectors = await this.embedder.embed(passages.map(indexedText), report, ended);
      await storeVectors(document.id, id, vectors);
      await this.#changed();
    } finally {
      this.#embedding.delete(document.id);
    }
  }

  /** Embeds all documents that need it. @param {Job} job @param {(what: Phrase) => void} say */
  async #embedAll(job, say) {
    const { signal } = job.controller;
    for (const document of this.documents.filter((document) => this.#isToEmbed(document))) {
      await this.#embed(document, say, signal).catch((error) => {
        if (signal.aborted || error.name !== "AbortError") throw error; // else it was removed
      });
    }
  }

  /** Embeds what an earlier visit left without vectors, in a job of its own. */
  #embedOthers() {
    if ([...this.jobs].some(({ file }) => !file) || !this.documents.some((document) => this.#isToEmbed(document)))
      return;
    this.#enqueue(null, t("Waiting …"), (job, say) => this.#embedAll(job, say)).catch((error) => {
      if (error.name !== "AbortError") this.#searchByWords(error);
    });
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
   * Runs work after the jobs before it. A job that is cancelled while it waits ends at once.
   * @param {File | null} file @param {Phrase} state
   * @param {(job: Job, say: (now: Phrase) => void) => Promise<void>} work
   */
  #enqueue(file, state, work) {
    const controller = new AbortController();
    /** @type {Job} */
    const job = { id: crypto.randomUUID(), file, state, controller, done: Promise.resolve() };
    const say = (/** @type {Phrase} */ now) => {
      job.state = now;
      this.parts.changed();
    };
    const before = this.#working;
    job.done = withSignal(before, controller.signal)
      .then(() => work(job, say))
      .finally(() => {
        this.jobs.delete(job);
        this.parts.changed();
      });
    this.#working = Promise.allSettled([before, job.done]);
    this.jobs.add(job);
    this.parts.changed();
    return job.done;
  }
}

/** Whether two are the same file of the disk. @param {File} one @param {File} other */
const isSame = (one, other) =>
  one.name === other.name && one.size === other.size && one.lastModified === other.lastModified;

/** The text of a passage that is indexed and embedded. @param {StoredPassage} passage */
const indexedText = ({ heading, text }) => (heading ? `${heading}\n${text}` : text);
