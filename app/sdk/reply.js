import { WispError } from "./error.js";
import { engineFetch } from "./fetch.js";

/**
 * @typedef {import("../wisp.js").Wisp} Wisp
 *
 * @typedef {object} Asked a request from outside the page
 * @property {string} method
 * @property {string} url a path of this page's host, or an address
 * @property {[string, string][]} [headers]
 * @property {BodyInit | null} [body]
 *
 * @typedef {{ kind: "head", status: number, headers: [string, string][] } | { kind: "piece", piece: Uint8Array }
 *   | { kind: "end" }} Part of the answer
 */

/**
 * The engine's answer to a request from outside the page, in parts. The head is sent at once, each piece of the body when
 * it is pulled: a slow reader slows the engine down, and one that disconnects stops it.
 */
export class Reply {
  #controller = new AbortController();
  /** @type {ReadableStreamDefaultReader<Uint8Array> | null} */
  #reader = null;
  #send;

  /**
   * @param {() => Promise<Wisp>} engine @param {Asked} asked
   * @param {(part: Part) => void} send
   */
  constructor(engine, asked, send) {
    this.#send = send;
    this.#answer(engine, asked).catch(() => this.#end());
  }

  /** Sends the next piece. */
  async pull() {
    try {
      const step = await this.#reader?.read();
      if (!step || step.done) this.#end();
      else this.#send({ kind: "piece", piece: step.value });
    } catch {
      this.#end();
    }
  }

  /** Stops the engine within one batch of tokens. */
  abort() {
    this.#send = () => {};
    this.#controller.abort();
    this.#reader?.cancel().catch(() => {});
  }

  #end() {
    this.#send({ kind: "end" });
    this.#send = () => {};
  }

  /** @param {() => Promise<Wisp>} engine @param {Asked} asked */
  async #answer(engine, asked) {
    const response = await this.#respond(engine, asked);
    if (this.#controller.signal.aborted) return response.body?.cancel();
    this.#reader = response.body?.getReader() ?? null;
    this.#send({ kind: "head", status: response.status, headers: [...response.headers] });
  }

  /** @param {() => Promise<Wisp>} engine @param {Asked} asked @returns {Promise<Response>} */
  async #respond(engine, asked) {
    const request = requestOf(asked);
    if (!request) {
      const message = `The engine answers no ${asked.method} for this address.`;
      const error = { message, type: "invalid_request_error", param: null, code: "invalid_value" };
      return Response.json({ error }, { status: 400 });
    }
    try {
      return await engineFetch(await engine(), request, { signal: this.#controller.signal });
    } catch (/** @type {any} */ error) {
      const { error: body } = error instanceof WispError ? error : WispError.crashed(`${error?.message ?? error}`);
      return Response.json({ error: body }, { status: 503 });
    }
  }
}

const BODILESS = ["GET", "HEAD"]; // a page's requests have none; programs may send one, which says nothing

/** A request as engineFetch takes it; null: no page can make it. @param {Asked} asked */
function requestOf({ method, url, headers, body }) {
  try {
    const sent = BODILESS.includes(method.toUpperCase()) ? null : body;
    return new Request(new URL(url, location.origin), { method, headers, body: sent });
  } catch {
    return null; // CONNECT, TRACE, or an address that is none
  }
}
