/**
 * The messages of a stdio server, which `build.py serve --api --mcp` runs, over one WebSocket: each a text.
 * The client calls `start`, `send` and `close`, and sets the listeners (its interface Transport).
 */
export class RelayTransport {
  /** @type {((message: any) => void) | undefined} */
  onmessage;
  /** @type {((error: Error) => void) | undefined} */
  onerror;
  /** @type {(() => void) | undefined} */
  onclose;
  // By these two, the client knows that the server speaks stdio: it then falls back to older revisions after a silence.
  stderr = null;
  pid = null;
  #url;
  /** @type {WebSocket | null} */
  #socket = null;

  /** @param {URL} url */
  constructor(url) {
    this.#url = url;
  }

  /** @returns {Promise<void>} */
  start() {
    const socket = new WebSocket(this.#url);
    this.#socket = socket;
    return new Promise((resolve, reject) => {
      socket.onopen = () => resolve();
      socket.onmessage = ({ data }) => this.#receive(data);
      socket.onclose = () => {
        reject(new Error("CONNECTION_REFUSED"));
        this.#socket = null;
        this.onclose?.();
      };
    });
  }

  /** @param {any} message @returns {Promise<void>} */
  async send(message) {
    if (this.#socket?.readyState !== WebSocket.OPEN) throw new Error("CONNECTION_CLOSED");
    this.#socket.send(JSON.stringify(message));
  }

  /** @returns {Promise<void>} */
  async close() {
    this.#socket?.close();
  }

  /** @param {string} data */
  #receive(data) {
    try {
      this.onmessage?.(JSON.parse(data));
    } catch (/** @type {any} */ error) {
      this.onerror?.(error);
    }
  }
}
