/**
 * The chunks of one streamed answer as an async iterable. Leaving the loop, `abort()` and the request's AbortSignal all
 * stop the engine; the loop then ends without an error, as the openai client's does.
 *
 * @template T
 * @implements {AsyncIterable<T>}
 */
export class ChunkStream {
  /** @type {T[]} chunks that the reader has not taken yet */
  #queue = [];
  /** @type {{ resolve: (step: IteratorResult<T>) => void, reject: (error: unknown) => void } | null} */
  #waiting = null;
  /** @type {unknown} */
  #error = null;
  #ended = false;
  /** @type {import("./journal.js").Journal | null} what another request needs to continue this answer; grows with it */
  journal = null;

  /** @param {AbortController} controller aborting it stops the engine */
  constructor(controller) {
    this.controller = controller;
    controller.signal.addEventListener("abort", () => this.end(), { once: true });
  }

  /** @param {T} chunk */
  push(chunk) {
    if (this.#ended) return;
    if (!this.#waiting) return void this.#queue.push(chunk);
    this.#waiting.resolve({ value: chunk, done: false });
    this.#waiting = null;
  }

  /** @param {unknown} [error] thrown to the reader after the chunks that came before it */
  end(error = null) {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    if (!this.#waiting) return;
    const { resolve, reject } = this.#waiting;
    this.#waiting = null;
    if (error) reject(error);
    else resolve({ value: undefined, done: true });
  }

  abort() {
    this.controller.abort();
  }

  /** @returns {AsyncIterator<T>} */
  [Symbol.asyncIterator]() {
    return {
      next: () => this.#next(),
      return: async () => {
        if (!this.#ended) this.abort();
        this.#queue.length = 0;
        return { value: undefined, done: true };
      },
    };
  }

  /** @returns {Promise<IteratorResult<T>>} */
  #next() {
    const chunk = this.controller.signal.aborted ? undefined : this.#queue.shift();
    if (chunk !== undefined) return Promise.resolve({ value: chunk, done: false });
    if (this.#ended) {
      const error = this.#error;
      this.#error = null;
      return error ? Promise.reject(error) : Promise.resolve({ value: undefined, done: true });
    }
    return new Promise((resolve, reject) => (this.#waiting = { resolve, reject }));
  }
}
