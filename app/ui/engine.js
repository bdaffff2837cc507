/**
 * The page's engine: booted once, and again after a crash. One load runs at a time; a failed load leaves the previous
 * model in place.
 */
import { t } from "../language/phrase.js";
import { knownProjector } from "./media/known_projectors.js";
import { Wisp, WispError } from "../wisp.js";

/**
 * @typedef {object} Choice a model to load
 * @property {import("../wisp.js").Model} [model] none: the catalog's default
 * @property {string} name shown
 * @property {import("../wisp.js").Model} [projector] with which it sees or hears
 * @property {string} [foundProjector] published beside it: the model is loaded without it if they do not suit
 * @property {string} [upstream] the configured server that runs it; nothing is loaded then
 * @property {string | string[]} [keep] catalog id or addresses that the next visit loads again
 * @property {string[]} [sha256] of each file, if they are known
 *
 * @typedef {object} Loaded
 * @property {string} name
 * @property {Choice} choice
 * @property {Record<string, any>} stats
 * @property {number} [contextLength] that was asked for
 *
 * @typedef {object} Loading
 * @property {AbortController} controller
 * @property {{ choice: Choice, contextLength?: number }} [asked] none: the model will not answer by default
 *
 * @typedef {object} Events
 * @property {(choice: Choice, booted: boolean) => void} loading
 * @property {import("../wisp.js").OnProgress} progress
 * @property {(loaded: Loaded) => void} loaded
 * @property {(error: unknown, choice: Choice) => void} failed
 * @property {(error: unknown, choice: Choice) => void} unsuited the model was loaded without the projector found for it
 * @property {() => void} idle no load is in progress
 * @property {(text: string) => void} left a request left this machine: "NAME: PATH"
 * @property {(text: string) => void} noticed something happened to a loaded model, such as the loss of the GPU
 */

export class Engine {
  /** @type {Loaded | null} the model that answers */
  loaded = null;
  /** @type {Wisp | null} */
  #wisp = null;
  /** @type {Loading | null} the load in progress */
  #loading = null;
  /** @type {Promise<void>} settles with the load in progress */
  #settled = Promise.resolve();
  #askedToPersist = false;

  /** @param {Events} events */
  constructor(events) {
    this.events = events;
  }

  /** What is being loaded, or else what answers. @returns {{ choice: Choice, contextLength?: number } | null} */
  get current() {
    return this.#loading?.asked ?? this.loaded;
  }

  get isLoading() {
    return this.#loading !== null;
  }

  /** @param {Choice} choice @param {{ contextLength?: number }} options @returns {Promise<boolean>} whether the model answers now */
  load(choice, options = {}) {
    this.cancel();
    const controller = new AbortController();
    this.#loading = { controller, asked: { choice, ...options } };
    const loading = this.#load(choice, options, controller);
    this.#settled = loading.then(() => {});
    return loading;
  }

  cancel() {
    this.#loading?.controller.abort();
  }

  /**
   * Loads a model beside the one that answers, which stays the default. Rejects if it cannot be loaded.
   * @param {Choice} choice @param {{ contextLength?: number }} options @returns {Promise<Loaded>}
   */
  async beside(choice, options = {}) {
    const wisp = await this.ready();
    if (choice.upstream) return { name: choice.name, choice, stats: {} };
    this.cancel();
    const controller = new AbortController();
    this.#loading = { controller };
    this.events.loading(choice, true);
    try {
      return await this.#start(wisp, choice, { default: false, ...options }, controller.signal);
    } finally {
      if (this.#loading?.controller === controller) {
        this.#loading = null;
        this.events.idle();
      }
    }
  }

  /** The engine with its model, after the load in progress. @returns {Promise<Wisp>} */
  async ready() {
    await this.#settled;
    if (!this.#wisp || !this.loaded)
      throw Object.assign(new Error(`${t("No model is loaded.")}`), { code: "model_not_loaded" });
    return this.#wisp;
  }

  /** The models of the catalog and of upstreams. @returns {Promise<Record<string, any>[]>} */
  async models() {
    return this.#wisp ? (await this.#wisp.models.list()).data : [];
  }

  /** The engine, with or without a model. @returns {Promise<Wisp>} */
  async wisp() {
    return (this.#wisp ??= await this.#boot());
  }

  /** The models in this browser's storage. */
  async cached() {
    return this.#wisp ? this.#wisp.models.cached() : [];
  }

  /** Deletes a model from the storage; if it is loaded, it stays loaded. @param {string} url */
  async removeCached(url) {
    await this.#wisp?.models.delete(url);
  }

  /** Sets whether a stored model is never removed to make space. @param {string} url @param {boolean} pinned */
  async pinCached(url, pinned) {
    await this.#wisp?.models.pin(url, pinned);
  }

  /** The use of the prompt cache in this browser's storage. */
  async prompts() {
    return this.#wisp ? this.#wisp.promptCache.usage() : null;
  }

  async clearPrompts() {
    await this.#wisp?.promptCache.clear();
  }

  /** @param {unknown} error of a request; after a crash there is neither engine nor model */
  forgetAfter(error) {
    if (/** @type {any} */ (error)?.code !== "worker_crashed") return;
    this.#wisp = null;
    this.loaded = null;
  }

  #boot() {
    /** @type {import("../wisp.js").OnLog} */
    const onLog = (level, text) => {
      if (level === "error") console.error(text);
      if (level === "upstream") this.events.left(text);
      if (level === "notice") this.events.noticed(text);
    };
    return Wisp.create({ onProgress: this.events.progress, onLog });
  }

  /**
   * Loads the files of a choice.
   * @param {Wisp} wisp @param {Choice} choice @param {{ contextLength?: number, default?: boolean }} options
   * @param {AbortSignal} signal @returns {Promise<Loaded>}
   */
  async #start(wisp, choice, options, signal) {
    const { name, model, sha256, projector, keep } = choice;
    const found = projector ? undefined : (choice.foundProjector ?? knownProjector(keep));
    const request = { model, sha256, projector: projector ?? found, clampContext: true, ...options };
    try {
      const stats = await wisp.load(request, { signal });
      return { name, choice: found ? { ...choice, foundProjector: found } : choice, stats };
    } catch (error) {
      if (!found || ["aborted", "worker_crashed"].includes(/** @type {any} */ (error).code)) throw error;
      const stats = await wisp.load({ ...request, projector: undefined }, { signal });
      this.events.unsuited(error, choice);
      return { name, choice: { ...choice, foundProjector: undefined }, stats };
    }
  }

  /** A model is cached: ask the browser not to evict it, once, because some browsers ask the user. */
  #persist() {
    if (!this.#askedToPersist) navigator.storage?.persist?.().catch(() => {});
    this.#askedToPersist = true;
  }

  /** @param {Choice} choice @param {{ contextLength?: number }} options @param {AbortController} controller */
  async #load(choice, options, controller) {
    const { signal } = controller;
    const mine = () => this.#loading?.controller === controller;
    this.events.loading(choice, this.#wisp !== null);
    try {
      this.#wisp ??= await Promise.race([this.#boot(), rejectedBy(signal)]);
      const loaded = choice.upstream
        ? { name: choice.name, choice, stats: {} }
        : await this.#start(this.#wisp, choice, options, signal);
      if (!this.#loading) return false; // the model of a later load answers already
      this.loaded = { ...loaded, contextLength: options.contextLength };
      if (mine()) this.events.loaded(this.loaded);
      if (!choice.upstream) this.#persist();
      return true;
    } catch (error) {
      this.forgetAfter(error);
      if (mine()) this.events.failed(error, choice);
      return false;
    } finally {
      if (mine()) {
        this.#loading = null;
        this.events.idle();
      }
    }
  }
}

/** @param {AbortSignal} signal @returns {Promise<never>} */
function rejectedBy(signal) {
  const error = new WispError({ message: `${t("Cancelled.")}`, type: "invalid_request_error", code: "aborted" });
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(error), { once: true }));
}
