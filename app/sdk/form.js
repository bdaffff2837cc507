/** Requests whose body is a form with a file: OpenAI's multipart forms, and the same fields as an object of the SDK. */
import { WispError } from "./error.js";

/**
 * @typedef {import("./endpoints.js").Endpoint} Endpoint
 * @typedef {Record<string, any>} Json
 */

const MULTIPART = /^multipart\/form-data\b/i;

/** The body of a request as the SDK's method takes it. @param {Request} request @param {Endpoint} endpoint @returns {Promise<any>} */
export async function bodyOf(request, endpoint) {
  if (!endpoint.form) {
    const body = await request.json().catch(() => {
      throw refused("The body is not JSON.");
    });
    if (body !== null && typeof body === "object") return body; // lists are for the engine: some endpoints take one
    throw refused(`Expected a JSON object as the request, not ${body === null ? "null" : `a ${typeof body}`}.`);
  }
  if (!MULTIPART.test(request.headers.get("content-type") ?? "")) {
    throw refused("Send a form: the body must be multipart/form-data, with its boundary in the Content-Type.");
  }
  const form = await request.formData().catch(() => {
    throw refused("The body is not a whole multipart form.");
  });
  /** @type {Json} */
  const body = Object.create(null); // a field may have any name
  for (const [name, value] of form) {
    const list = name.endsWith("[]") ? name.slice(0, -2) : "";
    if (list && !Array.isArray((body[list] ??= []))) throw refused(`${list} is sent as one value and as a list.`);
    if (list) body[list].push(value);
    else body[name] = typeof value === "string" ? typed(value, endpoint.form[name]) : value;
  }
  return body;
}

/** A field's text as its type; a text that does not fit stays one, and the engine refuses it. @param {string} text @param {string} [type] */
function typed(text, type) {
  if (type === "boolean") return text === "true" || (text === "false" ? false : text);
  if (type === "number" && text.trim()) return Number.isNaN(Number(text)) ? text : Number(text);
  return text;
}

/**
 * Splits a request into its JSON and its files, which messages carry beside it.
 * @param {Json} fields @param {Endpoint["form"]} form @returns {{ request: Json, files: Json }}
 */
export function withoutFiles(fields, form) {
  const names = Object.keys(form ?? {}).filter((name) => form?.[name] === "file");
  const request = { ...fields };
  /** @type {Json} */
  const files = {};
  for (const name of names) {
    const file = request[name];
    delete request[name];
    if (file !== undefined) files[name] = ArrayBuffer.isView(file) || file instanceof ArrayBuffer ? bytes(file) : file;
  }
  return { request, files };
}

/** @param {any} data */
const bytes = (data) => new Blob([data]);

/** @param {string} message */
function refused(message) {
  return new WispError({ message, type: "invalid_request_error", code: "invalid_type" });
}
