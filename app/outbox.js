/**
 * The messages to one client. To post one takes a browser some 60 microseconds, as long as Python takes for a small chunk of
 * an answer. So a client that reads several in one array gets those of one task of the browser together, in their order.
 * With many requests at once, these are a chunk of each.
 */
export class Outbox {
  /** Whether the client reads several messages in one array; its "hello" says so. */
  several = false;
  #port;
  /** @type {any[]} */
  #waiting = [];

  /** @param {MessagePort} port */
  constructor(port) {
    this.#port = port;
  }

  /** Sends a message, at the end of the browser's present task. @param {any} message */
  post(message) {
    if (!this.several) return this.#port.postMessage(message);
    if (!this.#waiting.length) queueMicrotask(() => this.#send());
    this.#waiting.push(message);
  }

  #send() {
    const messages = this.#waiting;
    this.#waiting = [];
    this.#port.postMessage(messages.length > 1 ? messages : messages[0]);
  }
}
