/** The interpreter that finds packages in an index. */
import { Sandbox, wheel } from "./sandbox/sandbox.js";

/**
 * @typedef {import("./sandbox/sandbox.js").Supply} Supply
 * @typedef {import("./sandbox/sandbox.js").Ran} Ran
 */

const IDLE_MS = 60_000; // after which its memory is freed

/** A sandbox in which no code of a model runs: such code could forge what the index is asked for. Calls share it in turn. */
class Resolver {
  /** @type {Promise<Sandbox> | null} */
  #sandbox = null;
  /** @type {Supply} what the call under way fetches with */
  #supply = wheel;
  /** @type {Promise<unknown>} the last call */
  #last = Promise.resolve();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #idle;

  /**
   * Runs code of the page, which fetches with `supply`. Rejects with the signal's reason.
   * @param {string} code @param {Supply} supply
   * @param {{ seconds: number, signal: AbortSignal, isPrivate: boolean }} options `isPrivate`: nothing of it stays in memory
   * @returns {Promise<Ran>}
   */
  run(code, supply, options) {
    const { signal } = options;
    signal.throwIfAborted();
    const run = () => this.#run(code, supply, options);
    const running = this.#last.then(run, run);
    this.#last = running.catch(() => {}).then(() => {}); // not what it found, which may be large
    /** @type {Promise<never>} a call that waits for its turn is stopped, too */
    const stopped = new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
    return Promise.race([running, stopped]);
  }

  /** @param {string} code @param {Supply} supply @param {{ seconds: number, signal: AbortSignal, isPrivate: boolean }} options */
  async #run(code, supply, { seconds, signal, isPrivate }) {
    signal.throwIfAborted();
    clearTimeout(this.#idle);
    this.#supply = supply;
    this.#sandbox ??= Sandbox.start("python", signal, (name) => this.#supply(name));
    const sandbox = await this.#sandbox.catch((error) => {
      this.#sandbox = null;
      throw error;
    });
    try {
      const ran = await sandbox.run(code, [], { seconds, signal });
      if (ran.failed || isPrivate) sandbox.end(); // a failed one may lack what was not to be fetched
      return ran;
    } finally {
      this.#supply = wheel;
      if (sandbox.ended) this.#sandbox = null;
      else this.#idle = setTimeout(() => this.#end(), IDLE_MS);
    }
  }

  #end() {
    this.#sandbox?.then((sandbox) => sandbox.end()).catch(() => {});
    this.#sandbox = null;
  }
}

export const resolver = new Resolver();
