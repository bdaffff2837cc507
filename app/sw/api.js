/**
 * The OpenAI API below `v1/`, as the service worker answers it: it hands the request to a page of this origin that has
 * an engine (app/sdk/host.js) over a MessagePort, and passes the answer on as it is asked for.
 *
 * Nothing is remembered between requests, since the browser stops and starts service workers as it likes: every
 * request asks all pages who has an engine. Over the port go, to the page: "request", "pull" (one piece, please),
 * "abort", "ping"; from it: "host", "head", "piece", "end", "pong".
 */
/// <reference lib="webworker" />

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));

const FIND_MS = 3_000; // how long a page may take to say that it has an engine
const HEAD_MS = 1_000;
const PING_MS = 1_000;
const SILENT_MS = 8_000; // a page from which nothing came for so long is taken for gone: its tab hangs or is frozen

/** @typedef {{ client: Client, port: MessagePort, loaded: boolean }} Host */

/** @param {Request} request whether the API answers it */
export function isApi(request) {
  return request.mode !== "navigate" && request.url.startsWith(new URL("v1/", worker.registration.scope).href);
}

/** @param {FetchEvent} event @returns {Promise<Response>} */
export async function answerApi({ request, clientId }) {
  const [body, host] = await Promise.all([request.arrayBuffer(), findHost(clientId)]);
  if (!host) {
    return failure("no_engine", `No page of ${worker.location.origin} has an engine: open one in a tab and try again.`);
  }
  return new Exchange(host).start(request, body);
}

/**
 * Asks every page; the first one with a model is taken, the asking page above others, or else one without a model,
 * which then says so itself.
 * @param {string} asking client id @returns {Promise<Host | null>}
 */
async function findHost(asking) {
  const found = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  const clients = [...found].sort((a, b) => Number(b.id === asking) - Number(a.id === asking));
  /** @type {Host[]} */
  const hosts = [];
  return new Promise((resolve) => {
    let open = clients.length;
    const settle = () => {
      clearTimeout(timer);
      const best = hosts.find((host) => host.loaded) ?? hosts[0] ?? null;
      for (const host of hosts) if (host !== best) host.port.close();
      resolve(best);
    };
    const timer = setTimeout(settle, FIND_MS);
    if (!open) settle();
    for (const client of clients) {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = ({ data }) => {
        if (data.kind === "host") hosts.push({ client, port: port1, loaded: data.loaded });
        if (--open === 0 || data.loaded) settle();
      };
      client.postMessage({ kind: "wisp.api" }, [port2]);
    }
  });
}

/**
 * One request and its answer.
 *
 * A service worker learns that a client gave up only by the cancelling of a body, not while its response is pending
 * (Chromium). So a response that takes longer than HEAD_MS begins before the page's head of the answer is there. What
 * goes wrong after that cannot have a status of its own: it comes as an event, or breaks an answer that is not streamed.
 */
class Exchange {
  #host;
  #heard = Date.now();
  #over = false;
  #asked = false; // whether the client streams
  #answered = false; // whether the page's head came
  #late = ""; // the body of an error that came after the response had begun
  #failed = false;
  /** @type {ReadableStreamDefaultController<Uint8Array> | null} */
  #body = null;
  /** @type {((response: Response) => void) | null} null once the response has begun */
  #respond = null;
  /** @type {(() => void) | null} answers the stream's pull */
  #pulled = null;

  /** @param {Host} host */
  constructor(host) {
    this.#host = host;
    host.port.onmessage = ({ data }) => this.#receive(data);
    host.port.addEventListener("close", () => this.#lost()); // a tab that ends says so in newer browsers
  }

  /** @param {Request} request @param {ArrayBuffer} body @returns {Promise<Response>} */
  start({ method, url, headers, signal }, body) {
    const { port } = this.#host;
    this.#asked = streams(body);
    port.postMessage({ kind: "request", method, url, headers: [...headers], body: body.byteLength ? body : null });
    signal.addEventListener("abort", () => this.#abort());
    const type = this.#asked ? "text/event-stream" : "application/json";
    setTimeout(() => this.#begin(200, [["content-type", type]]), HEAD_MS);
    this.#watch();
    return new Promise((resolve) => (this.#respond = resolve));
  }

  /** @param {{ kind: string, [field: string]: any }} message from the page */
  #receive(message) {
    this.#heard = Date.now();
    if (this.#over) return;
    if (message.kind === "head") {
      this.#answered = true;
      if (this.#respond) this.#begin(message.status, message.headers);
      else this.#failed = message.status !== 200;
      if (this.#pulled) this.#pull();
    } else if (message.kind === "piece" && this.#failed) {
      this.#late += new TextDecoder().decode(message.piece);
      this.#pull();
    } else if (message.kind === "piece") {
      this.#body?.enqueue(message.piece);
      this.#pulled?.();
      this.#pulled = null;
    } else if (message.kind === "end") {
      if (this.#failed) this.#fail(this.#late);
      else this.#end();
    }
  }

  /** @param {number} status @param {[string, string][]} headers */
  #begin(status, headers) {
    if (!this.#respond || this.#over) return;
    const body = new ReadableStream(
      {
        start: (controller) => void (this.#body = controller),
        pull: () => {
          if (this.#answered) this.#pull();
          return new Promise((resolve) => (this.#pulled = () => resolve(undefined)));
        },
        cancel: () => this.#abort(),
      },
      { highWaterMark: 0 },
    );
    this.#respond(new Response(body, { status, headers }));
    this.#respond = null;
  }

  #pull() {
    this.#host.port.postMessage({ kind: "pull" });
  }

  /** Ends the answer when the page is gone: its tab was closed, it crashed, or it does not move any more. */
  async #watch() {
    while (!this.#over) {
      await new Promise((resolve) => setTimeout(resolve, PING_MS));
      if (this.#over) return;
      const there = await worker.clients.get(this.#host.client.id);
      if (!there || Date.now() - this.#heard > SILENT_MS) return this.#lost();
      this.#host.port.postMessage({ kind: "ping" });
    }
  }

  async #lost() {
    if (this.#over) return;
    const gone = failure(
      "engine_gone",
      "The page whose engine was answering is gone. Open it again and ask once more.",
    );
    if (!this.#respond) return this.#fail(await gone.text());
    this.#over = true;
    this.#respond(gone);
  }

  /** Ends a response that has begun with an error. @param {string} text OpenAI's JSON */
  #fail(text) {
    if (this.#over) return;
    if (this.#asked) this.#body?.enqueue(new TextEncoder().encode(`data: ${text}\n\n`));
    else this.#body?.error(new TypeError(text));
    this.#end();
  }

  #end() {
    this.#over = true;
    try {
      this.#body?.close();
    } catch {
      // it failed before
    }
    this.#pulled?.();
    this.#host.port.close();
  }

  #abort() {
    if (this.#over) return;
    this.#over = true;
    this.#host.port.postMessage({ kind: "abort" });
    this.#pulled?.();
    this.#respond?.(Response.error());
  }
}

/** @param {ArrayBuffer} body @returns {boolean} whether a request asks for events */
function streams(body) {
  try {
    return JSON.parse(new TextDecoder().decode(body)).stream === true;
  } catch {
    return false;
  }
}

/** @param {string} code @param {string} message @returns {Response} */
function failure(code, message) {
  const error = { message, type: "server_error", param: null, code };
  return Response.json({ error }, { status: 503 });
}
