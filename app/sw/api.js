/**
 * The service worker's API: the endpoints of app/openai/endpoints.json below its scope. A page below it that has an
 * engine (app/sdk/host.js) lends a port to the engine's worker; requests go over that port. When the page closes and the worker is shared, the answer continues
 * while any other tab is open. When the worker ends, the answer continues in the next one that a page has.
 *
 * No state survives a request, because the browser stops service workers at any time: each request asks all pages for
 * an engine.
 */
/// <reference lib="webworker" />
import { Connection } from "../sdk/connection.js";
import { endpointAt, Endpoints, isStreamed, isText, modelAt, streamType } from "../sdk/endpoints.js";
import { WispError } from "../sdk/error.js";
import { engineFetch, errorBody, streamPiece, TEXT } from "../sdk/fetch.js";
import { bodyOf } from "../sdk/form.js";
import { holdLock, pageLock } from "../sdk/link.js";

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));

const FIND_MS = 3_000; // for a page to say whether it has an engine
const COMING_MS = 30_000; // for a busy page with an engine to say so; to start its engine again after a crash
const HEAD_MS = 1_000;
const STAY_MS = 10_000; // a service worker without events is stopped after 30 s
const CHECK_MS = 8_000; // between two checks that the page whose engine starts is still open

/** @typedef {import("../sdk/endpoints.js").Endpoint} Endpoint */
/** @typedef {{ streamed: Endpoint | undefined, type: string }} Form of an answer: the endpoint of a streamed one; its type */
/** @typedef {{ client: Client, port: MessagePort, lock: Promise<string | null>, loaded: boolean }} Host a page; its engine's lock */

/** @param {Request} request whether the API answers this request */
export function isApi(request) {
  return request.mode !== "navigate" && pathOf(request.url) !== null;
}

/** The path of a request to the API below the scope; null for others. @param {string} url */
function pathOf(url) {
  const { scope } = worker.registration;
  const path = url.startsWith(scope) ? url.slice(scope.length).split(/[?#]/)[0] : "";
  return path.startsWith("v1/") || endpointAt(path, true) || modelAt(path, true) ? path : null;
}

/** @param {FetchEvent} event @returns {Promise<Response>} */
export async function answerApi({ request, clientId }) {
  const [body, host] = await Promise.all([request.arrayBuffer(), findHost(clientId)]);
  const endpoint = endpointAt(pathOf(request.url) ?? "", true);
  if (!host) {
    const message = `No page of ${worker.location.origin} has an engine: open one in a tab and try again.`;
    return failure({ message, type: "server_error", param: null, code: "no_engine" }, endpoint);
  }
  const connection = connect(host, () => findHost(clientId));
  const { method, url, headers } = request;
  const asked = new Request(url, { method, headers, body: body.byteLength ? body : null });
  const expected = await form(endpoint, asked.clone());
  const controller = new AbortController();
  request.signal.addEventListener("abort", () => (controller.abort(), connection.close(WispError.aborted())));
  const answer = engineFetch(new Endpoints(connection), asked, { signal: controller.signal }).catch((error) =>
    failure({ message: `${error}`, type: "server_error", param: null, code: "internal_error" }, endpoint),
  );
  return begin(answer, expected, controller, () => connection.close(WispError.aborted()));
}

/**
 * Asks every page for its engine. Prefers an engine with a model, and among these the asking page's. An engine without a
 * model loads the one that the request names, or reports that none is loaded.
 * @param {string} asking client id @returns {Promise<Host | null>}
 */
async function findHost(asking) {
  const [found, isEngineOpen] = await Promise.all([pages(), hasEngine()]);
  const clients = [...found].sort((a, b) => Number(b.id === asking) - Number(a.id === asking));
  /** @type {Host[]} */
  const hosts = [];
  return new Promise((resolve) => {
    const silent = new Set(clients);
    const coming = new Set();
    let patient = true;
    const settle = () => {
      clearTimeout(first);
      clearTimeout(last);
      const best = hosts.find((host) => host.loaded) ?? hosts[0] ?? null;
      for (const host of hosts) if (host !== best) host.port.close();
      resolve(best);
    };
    const check = () => {
      const isAwaited = patient || (isEngineOpen && !hosts.length);
      if (!coming.size && !(silent.size && isAwaited)) settle();
    };
    const first = setTimeout(() => ((patient = false), check()), FIND_MS);
    const last = setTimeout(settle, COMING_MS);
    for (const client of clients) {
      const [reply, way] = [new MessageChannel(), new MessageChannel()];
      /** @type {PromiseWithResolvers<string | null>} */
      const { promise: lock, resolve: ready, reject: failed } = Promise.withResolvers();
      lock.catch(() => {}); // where another page's engine answers
      reply.port1.onmessage = ({ data }) => {
        const { kind, loaded } = data;
        if (kind === "ready") return ready(data.lock);
        if (kind === "none") failed(new Error("The engine did not start."));
        silent.delete(client);
        if (kind === "coming") return void coming.add(client);
        coming.delete(client);
        if (kind === "host") hosts.push({ client, port: way.port1, lock, loaded });
        if (loaded) settle();
        else check();
      };
      client.postMessage({ kind: "wisp.api" }, [reply.port2, way.port2]);
    }
    check();
  });
}

/** Whether some page below the scope uses an engine's worker: it may be busy, and answer late. */
async function hasEngine() {
  const { held = [] } = (await worker.navigator.locks?.query().catch(() => null)) ?? {};
  return held.some(({ name }) => name?.startsWith(pageLock(worker.registration.scope)));
}

/** The pages below this service worker's scope: others of the origin may be other applications. */
async function pages() {
  const all = await worker.clients.matchAll({ type: "window", includeUncontrolled: true });
  return all.filter(({ url }) => url.startsWith(worker.registration.scope));
}

/**
 * A connection to the engine of a page, or of the next one when that has ended.
 * @param {Host | null} host @param {() => Promise<Host | null>} find @returns {Connection}
 */
function connect(host, find) {
  const lost = () => {
    const message = "The page whose engine was answering has closed. Open it again and repeat the request.";
    return new WispError({ message, type: "server_error", code: "engine_gone" });
  };
  const open = async () => {
    const found = host ?? (await find());
    host = null;
    if (!found) throw lost();
    return openLink(found, lost);
  };
  const connection = new Connection(open, { lost });
  const staying = setInterval(async () => {
    for (const page of await pages()) page.postMessage({ kind: "wisp.stay" }); // it answers with an event
  }, STAY_MS);
  connection.onClose = () => clearInterval(staying);
  return connection;
}

/**
 * The link to the engine of a page, when it is ready.
 * @param {Host} host @param {() => WispError} lost @returns {Promise<import("../sdk/link.js").Link>}
 */
async function openLink({ client, port, lock }, lost) {
  const held = await holdLock("wisp.request");
  port.postMessage({ kind: "hello", lock: held.lock, page: false, several: true });
  let checking = 0;
  const closed = new Promise((_, reject) => {
    const check = async () => (await worker.clients.get(client.id)) ?? reject(lost());
    checking = setInterval(check, CHECK_MS);
  });
  const found = await Promise.race([lock, closed])
    .catch(() => {
      held.release();
      throw lost();
    })
    .finally(() => clearInterval(checking));
  const end = () => {
    port.postMessage({ kind: "leave" });
    port.close();
    held.release();
  };
  /** @type {import("../sdk/link.js").Link} */
  const link = { port, lock: found, shared: false, end };
  port.addEventListener("close", () => link.onerror?.("its port was closed"));
  return link;
}

/**
 * The response to an answer.
 *
 * A service worker learns that a client gave up only when a body is cancelled, not while its response is pending
 * (Chromium). So a response that takes longer than HEAD_MS begins before the answer is ready. A later failure cannot
 * change the status: it becomes an event, or breaks off an answer that is not streamed.
 * @param {Promise<Response>} answer @param {Form} expected @param {AbortController} controller
 * @param {() => void} over called once
 * @returns {Promise<Response>}
 */
async function begin(answer, { streamed, type }, controller, over) {
  const early = await Promise.race([answer, new Promise((resolve) => setTimeout(resolve, HEAD_MS))]);
  const { status, headers } = early ?? { status: 200, headers: { "content-type": type } };
  /** @type {ReadableStreamDefaultReader<Uint8Array> | undefined} */
  let reader;
  const body = new ReadableStream(
    {
      async pull(stream) {
        try {
          const response = await answer;
          if (!early && !response.ok) {
            const text = await response.text();
            if (!streamed) throw new TypeError(text);
            stream.enqueue(new TextEncoder().encode(streamPiece(JSON.parse(text), streamed)));
            return finish(stream);
          }
          reader ??= response.body?.getReader();
          const step = await reader?.read();
          if (!step || step.done) finish(stream);
          else stream.enqueue(step.value);
        } catch (error) {
          over();
          stream.error(error);
        }
      },
      cancel() {
        controller.abort();
        reader?.cancel().catch(() => {});
        over();
      },
    },
    { highWaterMark: 0 },
  );
  /** @param {ReadableStreamDefaultController<Uint8Array>} stream */
  function finish(stream) {
    over();
    stream.close();
  }
  return new Response(body, { status, headers });
}

/**
 * The form of the answer to a request.
 * @param {Endpoint | undefined} endpoint @param {Request} request @returns {Promise<Form>}
 */
async function form(endpoint, request) {
  const body = endpoint && (await bodyOf(request, endpoint).catch(() => undefined));
  if (body && isStreamed(endpoint, body) === true) return { streamed: endpoint, type: streamType(endpoint) };
  return { streamed: undefined, type: isText(endpoint, body) ? TEXT : "application/json" };
}

/** @param {import("../sdk/error.js").ErrorBody} error @param {Endpoint | undefined} endpoint @returns {Response} */
function failure(error, endpoint) {
  return Response.json(errorBody(error, endpoint), { status: 503 });
}
