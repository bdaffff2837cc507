import { endpoints, methodOf } from "./endpoints.js";
import { WispError } from "./error.js";
import { decoded } from "./percent.js";

/**
 * @typedef {import("./types.d.ts").Api} Engine
 * @typedef {Record<string, any>} Json
 */

/** HTTP status of an error by its type; STATUS_OF_CODE comes first. */
const STATUS = {
  invalid_request_error: 400,
  authentication_error: 401,
  permission_error: 403,
  not_found_error: 404,
  rate_limit_error: 429,
  server_error: 500,
};
const STATUS_OF_CODE = {
  aborted: 499,
  device_lost: 503,
  worker_crashed: 503,
  engine_gone: 503,
  upstream_error: 502,
  upstream_unreachable: 502,
  upstream_timeout: 504,
};

/**
 * `fetch` for the OpenAI API, answered by an engine: paths below any prefix that ends with /v1, as JSON or server-sent
 * events.
 * @param {Engine} engine @param {RequestInfo | URL} input @param {RequestInit} [init] @returns {Promise<Response>}
 */
export async function engineFetch(engine, input, init) {
  const request = new Request(input, init);
  const { signal } = request;
  signal.throwIfAborted();
  try {
    return await route(engine, request);
  } catch (/** @type {any} */ error) {
    if (signal.aborted) throw signal.reason ?? error;
    return failure(error);
  }
}

/** @param {Engine} engine @param {Request} request */
async function route(engine, request) {
  const path = new URL(request.url).pathname.replace(/\/+$/, "");
  const found = /\/v1\/(.+)$/.exec(path)?.[1] ?? "";
  const { signal, method } = request;
  const endpoint = endpoints.find((entry) => entry.path === found);
  const allowed = endpoint?.method ?? (found.startsWith("models/") ? "GET" : "POST");
  if (!endpoint && !found.startsWith("models/")) return refusal(404, `There is nothing at ${method} ${path}.`);
  if (method !== allowed) return refusal(405, `${method} is not allowed for ${path}; use ${allowed}.`);
  if (!endpoint) return model(engine, decoded(found.slice("models/".length)));
  if (allowed === "GET") return json(await methodOf(engine, endpoint)());
  const body = await request.json().catch(() => {
    throw new WispError({ message: "The body is not JSON.", type: "invalid_request_error", code: "invalid_type" });
  });
  const answer = await methodOf(engine, endpoint)(body, { signal });
  return body?.stream ? events(answer, !endpoint.namedEvents) : json(answer);
}

/** OpenAI's object of one model. @param {Engine} engine @param {string} id */
async function model(engine, id) {
  const list = await engine.models.list();
  const found = list.data.find((/** @type {Json} */ entry) => entry.id === id);
  return found ? json(found) : refusal(404, `There is no model ${id}.`);
}

/** @param {any} value @param {number} [status] */
function json(value, status = 200) {
  return new Response(JSON.stringify(value), { status, headers: { "content-type": "application/json" } });
}

/** @param {number} status @param {string} message */
function refusal(status, message) {
  const type = status === 404 ? "not_found_error" : "invalid_request_error";
  return json({ error: { message, type, param: null, code: "not_found" } }, status);
}

/** @param {any} error */
function failure(error) {
  if (!(error instanceof WispError)) {
    const message = `${error?.message ?? error}`;
    return json({ error: { message, type: "server_error", param: null, code: "internal_error" } }, 500);
  }
  const status = STATUS_OF_CODE[/** @type {keyof typeof STATUS_OF_CODE} */ (error.code)];
  return json({ error: error.error }, status ?? STATUS[/** @type {keyof typeof STATUS} */ (error.type)] ?? 500);
}

/**
 * A response with chunks as server-sent events. Cancelling the body stops the engine.
 * @param {import("./stream.js").ChunkStream<any>} chunks @param {boolean} done whether to end with "[DONE]"; else events have names
 */
function events(chunks, done) {
  const encoder = new TextEncoder();
  const steps = chunks[Symbol.asyncIterator]();
  /** @param {any} data */
  const event = (data) => `${done || !data.type ? "" : `event: ${data.type}\n`}data: ${JSON.stringify(data)}\n\n`;
  const body = new ReadableStream(
    {
      async pull(controller) {
        try {
          const step = await steps.next();
          if (!step.done) return controller.enqueue(encoder.encode(event(step.value)));
          if (chunks.controller.signal.aborted) {
            return controller.error(new DOMException("The request was aborted.", "AbortError"));
          }
          if (done) controller.enqueue(encoder.encode("data: [DONE]\n\n"));
        } catch (/** @type {any} */ error) {
          controller.enqueue(encoder.encode(event({ error: error.error ?? { message: `${error}` } })));
        }
        controller.close();
      },
      cancel: () => chunks.abort(),
    },
    { highWaterMark: 0 },
  );
  return new Response(body, { headers: { "content-type": "text/event-stream", "cache-control": "no-store" } });
}
