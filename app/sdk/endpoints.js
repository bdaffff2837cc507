import { absolute } from "./address.js";
import { checkFields, checkModel } from "./arguments.js";
import { withoutFiles } from "./form.js";
import ENDPOINTS from "../openai/endpoints.json";

/**
 * @typedef {import("./connection.js").Connection} Connection
 * @typedef {import("./connection.js").CallOptions} CallOptions
 * @typedef {import("./types.d.ts").Api} Api
 * @typedef {Record<string, any>} Json
 *
 * @typedef {object} Endpoint  a row of the table that Python reads, too (app/openai/endpoints.py)
 * @property {string} path below the API's root
 * @property {string} sdk the SDK's method
 * @property {string} [method] default: POST
 * @property {string[]} [also] other paths of the same endpoint
 * @property {"named" | "bare" | "lines"} [stream] events with names; events; lines of JSON. Default: events, then "[DONE]"
 * @property {boolean} [streams] also a request that does not say so is streamed
 * @property {"anthropic" | "ollama" | "llama"} [errors] whose form errors have; default: OpenAI's
 * @property {boolean} [text] the answer is plain text
 * @property {boolean} [whole] it never streams
 * @property {string[]} [query] switches that it reads of the address
 * @property {Record<string, "file" | "boolean" | "number">} [form] requests are multipart forms: fields that are no texts
 */

export const endpoints = /** @type {Endpoint[]} */ (ENDPOINTS);

/** Matches prefixes below which only paths that begin with v1/ are: /v1/chat/completion is not llama.cpp's /completion. */
const BELOW_V1 = /\/v1\/./;

/** @param {string} prefix @param {string} known an endpoint's path */
const isRoot = (prefix, known) => known.startsWith("v1/") || !BELOW_V1.test(prefix);

/** Matches the path of one model below a list of models: its version of the API, and its id. */
const ONE_MODEL = /(?:^|\/)(v1|api\/v0)\/models\/(.+)$/;

/**
 * The endpoint of the list that a path names one model of, and the model's id; undefined also where an endpoint has that
 * path, such as api/v1/models/load. `whole`: not below a prefix.
 * @param {string} path @param {boolean} [whole]
 */
export function modelAt(path, whole = false) {
  const found = ONE_MODEL.exec(path);
  if (!found || (whole && found.index)) return undefined;
  const [, version, id] = found;
  if (endpoints.some((row) => path.endsWith(`/${row.path}`) && row.path.endsWith(`/models/${id}`))) return undefined;
  return { list: /** @type {Endpoint} */ (endpoints.find((row) => row.path === `${version}/models`)), id };
}

/**
 * The endpoint at a path: `whole`, exactly; else below any prefix. Where there are several, the one with the longest path,
 * then the one of the method.
 * @param {string} path @param {boolean} [whole] @param {string} [method] @returns {Endpoint | undefined}
 */
export function endpointAt(path, whole = false, method = "POST") {
  const slashed = `/${path.replace(/^\/+|\/+$/g, "")}`;
  const at = (/** @type {string} */ known) =>
    whole ? slashed === `/${known}` : slashed.endsWith(`/${known}`) && isRoot(slashed.slice(0, -known.length), known);
  const fit = (/** @type {Endpoint} */ row) =>
    Math.max(0, ...[row.path, ...(row.also ?? [])].filter(at).map(({ length }) => length));
  const longest = Math.max(1, ...endpoints.map(fit));
  const found = endpoints.filter((row) => fit(row) === longest);
  return found.find((row) => (row.method ?? "POST") === method) ?? found[0];
}

/** Whether a request is streamed. @param {Endpoint | undefined} endpoint @param {any} body */
export function isStreamed(endpoint, body) {
  return !endpoint?.whole && (body?.stream ?? endpoint?.streams ?? false);
}

/** Whether an answer that is not streamed is plain text. @param {Endpoint | undefined} endpoint @param {any} body */
export const isText = (endpoint, body) => Boolean(endpoint?.form) && body?.response_format === "text";

/** The media type of a streamed answer. @param {Endpoint | undefined} endpoint */
export const streamType = (endpoint) => (endpoint?.stream === "lines" ? "application/x-ndjson" : "text/event-stream");

/** The SDK's methods that answer requests over a connection: one for each row of the table. */
export const Endpoints = /** @type {new (connection: Connection) => Api} */ (
  class {
    /** @param {Connection} connection */
    constructor(connection) {
      for (const endpoint of endpoints) place(this, endpoint.sdk, caller(connection, endpoint));
      place(this, "models.cached", () => connection.call("models.cached"));
      place(this, "models.delete", (/** @type {string} */ model) => connection.call("models.delete", { model }));
      place(this, "models.pin", (/** @type {string} */ model, pinned = true) =>
        connection.call("models.pin", { model, pinned }),
      );
      place(this, "models.update", (/** @type {string} */ model, /** @type {CallOptions} */ options = {}) =>
        connection.call("models.update", { model }, options),
      );
      place(this, "models.onUpdate", (/** @type {(update: any) => void} */ listener) => {
        connection.onUpdate.add(listener);
        return () => void connection.onUpdate.delete(listener);
      });
      place(this, "models.inspect", async (/** @type {any} */ model, /** @type {any} */ { signal, ...fields } = {}) => {
        checkModel(model);
        return connection.call("models.inspect", { ...fields, model: absolute(model) }, { signal });
      });
    }
  }
);

/**
 * The function that calls an endpoint. The AbortSignal may come in the second argument, as the openai client passes it,
 * or as `signal` in the request.
 * @param {Connection} connection @param {Endpoint} endpoint
 */
function caller(connection, { sdk, method, whole, form }) {
  const kind = sdk.replace(/\.(create|list)$/, ""); // as Endpoint.kind in app/openai/endpoints.py
  if (method === "GET")
    return (/** @type {Json | undefined} */ query) => connection.call(kind, query && { request: query });
  return async (/** @type {Json} */ body, /** @type {CallOptions} */ options = {}) => {
    checkFields(body, `${sdk}()`);
    const { signal, ...fields } = body;
    const { request, files } = form ? withoutFiles(fields, form) : { request: Array.isArray(body) ? body : fields };
    const settings = { ...options, signal: options.signal ?? signal };
    if (body.stream && !whole) return connection.stream(kind, { ...files, request }, settings);
    return connection.call(kind, { ...files, request }, settings);
  };
}

/** Sets `target.a.b = value` for the path "a.b". @param {Json} target @param {string} path @param {unknown} value */
function place(target, path, value) {
  const names = path.split(".");
  const last = /** @type {string} */ (names.pop());
  for (const name of names) target = target[name] ??= {};
  target[last] = value;
}

/** The SDK's method of an endpoint. @param {Api} api @param {Endpoint} endpoint @returns {(...args: any[]) => Promise<any>} */
export function methodOf(api, { sdk }) {
  return sdk.split(".").reduce((/** @type {any} */ object, name) => object[name], api);
}
