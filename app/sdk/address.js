/**
 * The model of a load request: catalog ids and Files stay as they are; URLs become absolute, because the worker has
 * another base URL.
 * @param {any} model @returns {any}
 */
export function absolute(model) {
  if (Array.isArray(model)) return model.map(absolute);
  if (typeof model !== "string" || !/\/|\.gguf/i.test(model)) return model;
  return new URL(model, globalThis.document?.baseURI ?? import.meta.url).href;
}
