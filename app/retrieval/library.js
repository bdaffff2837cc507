/** The person's documents: read, split, embedded and searched, all on this machine. */
import { Embedder } from "./embedder.js";
import { addDocument, keepVectors, readAll, removeDocument } from "./index.js";
import { read } from "./read.js";
import { Lexical, search } from "./search.js";
import { split } from "./split.js";

/**
 * @typedef {import("./index.js").Document} Document
 * @typedef {import("./index.js").Kept} Kept
 * @typedef {import("./prompt.js").Source} Source
 *
 * @typedef {object} Parts
 * @property {() => Promise<import("../wisp.js").Wisp>} wisp
 * @property {() => Promise<import("./read.js").ReadPdf>} pdf
 * @property {() => void} changed the documents, the model or what is done with them changed
 */

const SIZE = 200; // tokens of a passage; embedding models see few at once, and small contexts hold few
const OVERLAP = 40;

export class Library {
  /** @type {Document[]} */
  documents = [];
  /** @type {Kept[]} */
  passages = [];
  /** @type {Map<string, string>} what is being done: a document's id or a file's name -> in words */
  busy = new Map();
  /** @type {string | null} why the embedding model was not of use the last time */
  trouble = null;
  /** @type {Lexical | null} made when it is needed */
  #lexical = null;
  #channel = new BroadcastChannel("wisp-documents");
  /** @type {Promise<unknown>} one after the other */
  #working = Promise.resolve();

  /** @param {Parts} parts */
  constructor(parts) {
    this.parts = parts;
    this.embedder = new Embedder(parts.wisp);
    this.#channel.onmessage = () => this.open(); // another tab changed them
  }

  /** Reads what is kept. */
  async open() {
    Object.assign(this, await readAll());
    this.#lexical = null;
    this.parts.changed();
  }

  /** Adds a file; rejects with what is wrong with it. @param {File} file @returns {Promise<void>} */
  add(file) {
    return this.#inTurn(file.name, "waiting", async (say) => {
      say("reading");
      const { blocks, pages } = await read(file, this.parts.pdf);
      const passages = await split(blocks, { size: SIZE, overlap: OVERLAP, count: (text) => this.#count(text) });
      const about = { id: crypto.randomUUID(), name: file.name, size: file.size, added: Date.now() };
      const before = this.documents.filter(({ name }) => name === file.name); // a newer version takes its place
      await addDocument({ ...about, ...(pages ? { pages } : {}) }, passages);
      for (const { id } of before) await removeDocument(id);
      await this.#changed();
      await this.#embed(say).catch((error) => this.#fall(error)); // by its words it is found all the same
    });
  }

  /** @param {string} id */
  async remove(id) {
    await removeDocument(id);
    await this.#changed();
  }

  /** Takes an embedding model, or none, and embeds anew. @param {import("./embedder.js").Chosen | null} chosen */
  choose(chosen) {
    return this.#inTurn("", "loading the model", async (say) => {
      if (chosen) await this.embedder.choose(chosen);
      else this.embedder.forget();
      this.trouble = null;
      await this.#embed(say);
    });
  }

  /** The best passages for a question. @param {string} question @param {number} most @returns {Promise<Source[]>} */
  async search(question, most) {
    const { id } = this.embedder;
    const current = new Set(this.documents.filter(({ model }) => id && model === id).map((document) => document.id));
    const names = new Map(this.documents.map((document) => [document.id, document.name]));
    const vectors = this.passages.map(({ document, vector }) => (current.has(document) ? vector : undefined));
    const asked = current.size ? await this.embedder.embed([question]).catch((error) => this.#fall(error)) : null;
    const meaning = asked ? { query: asked[0], vectors } : null;
    this.#lexical ??= new Lexical(this.passages.map(embedded));
    return search(this.#lexical, question, meaning, most).map(({ index }) => {
      const { document, text, heading, page } = this.passages[index];
      return { document: names.get(document) ?? "", text, ...(heading ? { heading } : {}), ...(page ? { page } : {}) };
    });
  }

  /** @param {string} text */
  async #count(text) {
    try {
      return await this.embedder.count(text);
    } catch {
      return Math.ceil(text.length / 3); // no model at hand: rather too many
    }
  }

  /** Embeds what the current model has not embedded yet. @param {(what: string) => void} say */
  async #embed(say) {
    const { id } = this.embedder;
    if (!id) return;
    for (const document of this.documents.filter(({ model }) => model !== id)) {
      const passages = this.passages.filter((passage) => passage.document === document.id);
      const report = (/** @type {number} */ done) => say(`embedding ${done} of ${passages.length} passages`);
      report(0);
      const vectors = await this.embedder.embed(passages.map(embedded), report);
      await keepVectors(document.id, id, vectors);
      await this.#changed();
    }
  }

  /** The embedding model is not there: words go on. @param {any} error @returns {null} */
  #fall(error) {
    this.trouble = `${this.embedder.id}: ${error?.message ?? error}`;
    this.parts.changed();
    return null;
  }

  async #changed() {
    await this.open();
    this.#channel.postMessage("changed");
  }

  /** @param {string} key @param {string} what @param {(say: (what: string) => void) => Promise<void>} work */
  #inTurn(key, what, work) {
    const say = (/** @type {string} */ now) => {
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

/** What is compared of a passage. @param {Kept} passage */
const embedded = ({ heading, text }) => (heading ? `${heading}\n${text}` : text);
