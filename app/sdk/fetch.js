import { endpointAt, isStreamed, isText, methodOf, modelAt, streamType } from "./endpoints.js";
import { WispError } from "./error.js";
import { bodyOf } from "./form.js";
import { decoded } from "./percent.js";

/**
 * @typedef {import("./types.d.ts").Api} Engine
 * @typedef {import("./endpoints.js").Endpoint} Endpoint
 * @typedef {Record<string, any>} Json
 */

/** Media types of plain texts. */
export const TEXT = "text/plain; charset=utf-8";
const METRICS = "text/plain; version=0.0.4; charset=utf-8"; // of Prometheus

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
  not_ready: 503,
  device_lost: 503,
  worker_crashed: 503,
  engine_gone: 503,
  mcp_unreachable: 424, // as OpenAI's API has it
  mcp_unauthorized: 424,
  mcp_timeout: 424,
  mcp_error: 424,
  upstream_error: 502,
  upstream_unreachable: 502,
  upstream_timeout: 504,
};

/** Endpoints that change which models there are: Ollama's, and LM Studio's. */
const OF_MODELS = /\/api\/(?:(?:pull|push|create|copy|delete|blobs\/.*)|v1\/models\/download(?:\/status(?:\/.*)?)?)$/;
const NO_MODELS = "models come and go in Wisp's page, not by requests.";

/** Details of a refused thread. With them, Anthropic's clients send the whole conversation. */
const NO_THREADS = { error_code: "thread_unsupported_request", unsupported: ["thread"] };

/** llama.cpp's types of errors by Wisp's codes, where they are not OpenAI's. */
const LLAMA_TYPES = {
  not_ready: "unavailable_error",
  engine_gone: "unavailable_error",
  no_engine: "unavailable_error",
  context_length_exceeded: "exceed_context_size_error",
};

/**
 * `fetch` for the API, answered by an engine: the paths of endpoints.json below any prefix, as JSON, server-sent events or
 * lines of JSON.
 * @param {Engine} engine @param {RequestInfo | URL} input @param {RequestInit} [init] @returns {Promise<Response>}
 */
export async function engineFetch(engine, input, init) {
  const request = new Request(input, init);
  const { signal } = request;
  signal.throwIfAborted();
  const path = new URL(request.url).pathname.replace(/\/+$/, "");
  const one = modelAt(path);
  const endpoint = one ? undefined : endpointAt(path, false, request.method);
  try {
    return await route(engine, request, { path, one, endpoint });
  } catch (/** @type {any} */ error) {
    if (signal.aborted) throw signal.reason ?? error;
    return failure(error, endpoint);
  }
}

/**
 * @param {Engine} engine @param {Request} request
 * @param {{ path: string, one: ReturnType<typeof modelAt>, endpoint: Endpoint | undefined }} asked `one`: the model of /v1/models/ID
 */
async function route(engine, request, { path, one, endpoint }) {
  const { signal, method } = request;
  const refused = OF_MODELS.exec(path)?.[0];
  if (refused && !endpoint) return changesNoModels(refused);
  if (one) {
    if (method !== "GET") return notAllowed(method, path, "GET");
    return model(engine, one.list, decoded(one.id));
  }
  if (!endpoint) return refusal(404, `There is nothing at ${method} ${path}.`);
  const allowed = endpoint.method ?? "POST";
  if (method !== allowed) return notAllowed(method, path, allowed, endpoint);
  const call = methodOf(engine, endpoint);
  if (allowed === "GET") {
    const value = await call(queryOf(request, endpoint));
    return endpoint.text ? text(value, METRICS) : json(value);
  }
  const body = await bodyOf(request, endpoint);
  const streamed = isStreamed(endpoint, body);
  const asking = endpoint.streams && streamed && !Array.isArray(body) ? { ...body, stream: true } : body;
  const answer = await call(asking, { signal });
  if (streamed) return events(answer, endpoint);
  return isText(endpoint, body) ? text(answer, TEXT) : json(answer);
}

/** What an endpoint reads of an address's query: switches. @param {Request} request @param {Endpoint} endpoint */
function queryOf({ url }, { query = [] }) {
  const { searchParams } = new URL(url);
  const given = query.filter((name) => searchParams.has(name));
  const isOn = (/** @type {string} */ name) => !["0", "false"].includes(searchParams.get(name) ?? "");
  return given.length ? Object.fromEntries(given.map((name) => [name, isOn(name)])) : undefined;
}

/** One model of a list. @param {Engine} engine @param {Endpoint} list @param {string} id */
async function model(engine, list, id) {
  const { data } = await methodOf(engine, list)();
  const found = data.find((/** @type {Json} */ entry) => entry.id === id);
  if (found) return json(found);
  const error = {
    message: `There is no model ${id}.`,
    type: "not_found_error",
    param: "model",
    code: "model_not_found",
  };
  return json({ error }, 404);
}

/** @param {any} value @param {number} [status] @param {Headers} [others] */
function json(value, status = 200, others) {
  const headers = new Headers(others);
  headers.set("content-type", "application/json");
  return new Response(JSON.stringify(value), { status, headers });
}

/** @param {string} value @param {string} type */
function text(value, type) {
  return new Response(value, { headers: { "content-type": type } });
}

/** @param {number} status @param {string} message @param {Endpoint} [endpoint] */
function refusal(status, message, endpoint) {
  const type = status === 404 ? "not_found_error" : "invalid_request_error";
  return json(errorBody({ message, type, param: null, code: "not_found" }, endpoint), status);
}

/** The refusal of an endpoint that changes which models there are, in the form of its API. @param {string} path */
function changesNoModels(path) {
  if (path.startsWith("/api/v1/"))
    return refusal(501, `${path}: ${NO_MODELS} /api/v1/models lists those that a request may name.`);
  const endpoint = /** @type {Endpoint} */ ({ errors: "ollama" });
  return refusal(501, `${path}: ${NO_MODELS} /api/tags lists those that a request may name.`, endpoint);
}

/** @param {string} method @param {string} path @param {string} allowed @param {Endpoint} [endpoint] */
function notAllowed(method, path, allowed, endpoint) {
  return refusal(405, `${method} is not allowed for ${path}; use ${allowed}.`, endpoint);
}

/** @param {any} error @param {Endpoint | undefined} endpoint */
function failure(error, endpoint) {
  const [body, status] = described(error);
  return json(errorBody(body, endpoint), status, error?.headers);
}

/** OpenAI's error, and its HTTP status. @param {any} error @returns {[import("./error.js").ErrorBody, number]} */
function described(error) {
  if (!(error instanceof WispError)) {
    const message = `${error?.message ?? error}`;
    return [{ message, type: "server_error", param: null, code: "internal_error" }, 500];
  }
  return [error.error, statusOf(error)];
}

/** The HTTP status of an error. @param {{ code?: string, type?: string }} error */
function statusOf({ code, type }) {
  const status = STATUS_OF_CODE[/** @type {keyof typeof STATUS_OF_CODE} */ (code)];
  return status ?? STATUS[/** @type {keyof typeof STATUS} */ (type)] ?? 500;
}

/**
 * An error in the form of an endpoint's API.
 * @param {import("./error.js").ErrorBody} error @param {Endpoint | undefined} endpoint @returns {Json}
 */
export function errorBody(error, endpoint) {
  if (endpoint?.errors === "ollama") return { error: error.message };
  if (endpoint?.errors === "llama") return { error: ofLlama(error) };
  if (endpoint?.errors !== "anthropic") return { error };
  const type = error.type === "server_error" ? "api_error" : error.type;
  return { type: "error", error: { ...error, type, ...(error.param === "thread" && { details: NO_THREADS }) } };
}

/** llama.cpp's error: its code is the HTTP status. @param {import("./error.js").ErrorBody} error */
function ofLlama(error) {
  const { code, type, ...others } = error;
  return { ...others, code: statusOf(error), type: LLAMA_TYPES[/** @type {"not_ready"} */ (code)] ?? type };
}

/** A piece of a stream in the form of an endpoint. @param {any} data @param {Endpoint | undefined} endpoint */
export function streamPiece(data, endpoint) {
  if (endpoint?.stream === "lines") return `${JSON.stringify(data)}\n`;
  const name = endpoint?.stream === "named" && data.type ? `event: ${data.type}\n` : "";
  return `${name}data: ${JSON.stringify(data)}\n\n`;
}

/**
 * A response with chunks in the form of an endpoint. Cancelling the body stops the engine.
 * @param {import("./stream.js").ChunkStream<any>} chunks @param {Endpoint} endpoint
 */
function events(chunks, endpoint) {
  const encoder = new TextEncoder();
  const steps = chunks[Symbol.asyncIterator]();
  const piece = (/** @type {any} */ data) => streamPiece(data, endpoint);
  const body = new ReadableStream(
    {
      async pull(controller) {
        try {
          const step = await steps.next();
          if (!step.done) return controller.enqueue(encoder.encode(piece(step.value)));
          if (chunks.controller.signal.aborted) {
            return controller.error(new DOMException("The request was aborted.", "AbortError"));
          }
          if (!endpoint.stream) controller.enqueue(encoder.encode("data: [DONE]\n\n"));
        } catch (/** @type {any} */ error) {
          controller.enqueue(encoder.encode(piece(errorBody(error.error ?? { message: `${error}` }, endpoint))));
        }
        controller.close();
      },
      cancel: () => chunks.abort(),
    },
    { highWaterMark: 0 },
  );
  return new Response(body, { headers: { "content-type": streamType(endpoint), "cache-control": "no-store" } });
}
