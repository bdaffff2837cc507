/** OpenAI-compatible servers for models too large for this device. */

/**
 * @typedef {object} Upstream
 * @property {string} name
 * @property {string} base_url
 * @property {string | null} key the last characters of its API key
 * @property {number} timeout seconds
 * @property {string[]} models as requests name them: `name/model`
 * @property {number} asked when its list of models was requested, seconds since 1970
 * @property {string | null} error why that failed
 * @property {number} requests sent there since this engine started
 * @property {number | null} last_request seconds since 1970
 */

/**
 * Only requests whose `model` is `name/model` of one of them leave this machine. The configuration is stored for later
 * visits; the keys are never returned.
 */
export class Upstreams {
  #connection;

  /** @param {import("./connection.js").Connection} connection */
  constructor(connection) {
    this.#connection = connection;
  }

  /** @returns {Promise<{ data: Upstream[] }>} */
  list() {
    return this.#connection.call("upstreams.list");
  }

  /**
   * Configures or changes a server, and requests its models. Without an `apiKey` the stored one stays if the server is
   * the same.
   * @param {{ name: string, baseURL: string, apiKey?: string, timeout?: number, models?: string[] }} upstream
   *   `timeout`: seconds without an answer; `models`: their ids, for a server that does not list them
   * @returns {Promise<Upstream>}
   */
  set(upstream) {
    return this.#connection.call("upstreams.set", upstream);
  }

  /** Requests its models again. @param {string} name @returns {Promise<Upstream>} */
  refresh(name) {
    return this.#connection.call("upstreams.refresh", { name });
  }

  /** @param {string} name @returns {Promise<void>} */
  remove(name) {
    return this.#connection.call("upstreams.remove", { name });
  }
}
