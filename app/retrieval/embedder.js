/** The embedding model that the user chose for documents. It is loaded at its first use, beside the chat model. */

import { t } from "../language/phrase.js";
import { bytesOf } from "../sdk/base64.js";
import { withSignal } from "../sdk/with_signal.js";
import { isText, storedObject } from "../storage/local_json.js";

/**
 * @typedef {import("../wisp.js").Wisp} Wisp
 * @typedef {{ model: import("../wisp.js").Model, name: string }} Chosen an address or a file, and its display name
 */

const STORAGE_KEY = "wisp.embedder"; // in localStorage
const BATCH = 8; // texts a request; small, so that chats can run in between

export class Embedder {
  /** @type {Chosen | null} */
  chosen = storedChoice();
  #wisp;
  /** @type {Promise<unknown> | null} */
  #loaded = null;

  /** @param {() => Promise<Wisp>} wisp */
  constructor(wisp) {
    this.#wisp = wisp;
  }

  /** The name that the vectors of this model are stored with. */
  get id() {
    return this.chosen?.name ?? null;
  }

  /**
   * Loads a model; keeps the previous one if this one makes no embeddings.
   * @param {Chosen} chosen @param {AbortSignal} [signal] @returns {Promise<void>}
   */
  async choose(chosen, signal) {
    const before = this.chosen;
    [this.chosen, this.#loaded] = [chosen, null];
    try {
      await this.embed(["test"], undefined, signal);
    } catch (error) {
      [this.chosen, this.#loaded] = [before, null];
      throw error;
    }
    if (typeof chosen.model === "string") localStorage.setItem(STORAGE_KEY, JSON.stringify(chosen));
    else localStorage.removeItem(STORAGE_KEY); // a file must be chosen again at the next visit
  }

  /** Removes the choice of a model; search then uses words alone. */
  forget() {
    [this.chosen, this.#loaded] = [null, null];
    localStorage.removeItem(STORAGE_KEY);
  }

  /** Counts the tokens of a text. @param {string} text @returns {Promise<number>} */
  async count(text) {
    const wisp = await this.#wisp();
    if (this.chosen) await this.#load();
    return (await wisp.tokenize(text, { model: this.chosen?.name })).length;
  }

  /**
   * Embeds texts. Vectors have length 1.
   * @param {string[]} texts @param {(done: number) => void} [report] @param {AbortSignal} [signal]
   * @returns {Promise<Float32Array[]>}
   */
  async embed(texts, report = () => {}, signal) {
    await withSignal(this.#load(), signal);
    /** @type {Float32Array[]} */
    const vectors = [];
    for (let i = 0; i < texts.length; i += BATCH) {
      signal?.throwIfAborted();
      vectors.push(...(await withSignal(this.#request(texts.slice(i, i + BATCH)), signal)));
      report(vectors.length);
    }
    return vectors;
  }

  /** @param {string[]} texts @returns {Promise<Float32Array[]>} */
  async #request(texts, retry = true) {
    const wisp = await this.#wisp();
    const encoding_format = /** @type {const} */ ("base64");
    const request = { model: this.chosen?.name, input: texts, encoding_format };
    try {
      const { data } = await wisp.embeddings.create(request);
      return data.map(({ embedding }) => numbers(embedding));
    } catch (/** @type {any} */ error) {
      if (error.code === "model_not_found" && retry) {
        this.#loaded = null; // it was evicted for another model
        await this.#load();
        return this.#request(texts, false);
      }
      if (error.code !== "context_length_exceeded") throw error;
      if (texts.length > 1) return (await Promise.all(texts.map((text) => this.#request([text])))).flat();
      return this.#request([texts[0].slice(0, texts[0].length * 0.7)]); // too long: embed its beginning
    }
  }

  #load() {
    const { chosen } = this;
    if (!chosen) throw new Error(`${t("No embedding model is chosen.")}`);
    this.#loaded ??= this.#wisp()
      .then((wisp) => wisp.load({ ...chosen, default: false }))
      .catch((error) => {
        this.#loaded = null;
        throw error;
      });
    return this.#loaded;
  }
}

/** @returns {Chosen | null} */
function storedChoice() {
  const { model, name } = storedObject(STORAGE_KEY);
  return isText(model) && isText(name) ? { model, name } : null;
}

/** @param {string} base64 of little-endian float32 */
function numbers(base64) {
  return new Float32Array(bytesOf(base64).buffer);
}
