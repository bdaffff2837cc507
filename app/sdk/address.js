/**
 * The model of a load request: catalog ids and Files stay as they are; URLs become absolute, because the worker has
 * another base URL.
 * @param {any} model @returns {any}
 */
export function absolute(model) {
  if (Array.isArray(model)) return model.map(absolute);
  if (typeof model !== "string" || !/\/|\.gguf/i.test(model)) return model;
  return fileOf(new URL(model, globalThis.document?.baseURI ?? import.meta.url).href);
}

/** The address of the file itself, where a user copied that of its page on the hub. @param {string} url */
export const fileOf = (url) =>
  url.replace(/^(https:\/\/(?:www\.)?(?:huggingface\.co|hf\.co)\/[^/]+\/[^/]+)\/blob\//i, "$1/resolve/");

/**
 * The id of the repository that a text names by its id, which ends in -GGUF, or by the address of its page; else null.
 * @param {string} text @returns {string | null} OWNER/NAME
 */
export function repositoryOf(text) {
  const page =
    /^https:\/\/(?:www\.)?(?:huggingface\.co|hf\.co)\/([\w.-]+\/[\w.-]+)(?:\/tree\/[^/]+)?\/?(?:[?#].*)?$/i.exec(text);
  const id = page?.[1] ?? (/^[\w-][\w.-]*\/[\w.-]*-gguf$/i.test(text) ? text : null);
  return id && !/\.gguf$/i.test(id) && !/^(collections|datasets|docs|papers|spaces)\//.test(id) ? id : null;
}
