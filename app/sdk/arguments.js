/** Checks the arguments of the SDK's methods: the error for a mistake says what to write. */
import { repositoryOf } from "./address.js";
import { WispError } from "./error.js";

/** @typedef {Record<string, any>} Json */

/**
 * Throws a WispError where a call's fields are not in an object. A text or a file would count as an object without fields.
 * @param {unknown} given @param {string} call such as "load()" @param {string} [example] what to write
 */
export function checkFields(given, call, example = "") {
  if (typeof given === "object" && given !== null && !(given instanceof Blob)) return;
  throw refused("invalid_type", `${call} needs an object with its fields${example}, not ${kindOf(given)}.`, null);
}

/** Throws a WispError where a model is a repository of the hub, not a file in one. @param {unknown} model */
export function checkModel(model) {
  for (const one of Array.isArray(model) ? model : [model]) {
    const id = typeof one === "string" ? repositoryOf(one) : null;
    if (!id) continue;
    const what = `${one} is a repository with several files. Give the address of a .gguf file in it`;
    throw refused("invalid_value", `${what}; (await Hub.open()).files("${id}") lists them.`, "model");
  }
}

/** @param {string} code @param {string} message @param {string | null} param */
const refused = (code, message, param) => new WispError({ message, type: "invalid_request_error", param, code });

/** A value in words. @param {unknown} value */
function kindOf(value) {
  if (value === undefined) return "nothing";
  if (value === null) return "null";
  if (value instanceof Blob) return "a file";
  return `a ${typeof value}`;
}
