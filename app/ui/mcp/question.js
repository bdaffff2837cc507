/** Asks the user what an MCP server asks while a tool runs: a form of its flat schema, or an address to open. */
import { t } from "../../language/phrase.js";
import { byId, h } from "../dom.js";
import { say } from "../texts.js";
import { isPage } from "./sign_in.js";

/**
 * @typedef {import("../../sdk/types.d.ts").McpQuestion} McpQuestion
 * @typedef {import("../../sdk/types.d.ts").McpAnswer} McpAnswer
 * @typedef {Record<string, any>} Schema of one field: a string, a number, a boolean, or one or several of some texts
 */

/** @type {Promise<unknown>} */
let before = Promise.resolve();

/**
 * Shows a question, after those that are open. Declined with its button, cancelled where the sheet is closed.
 * @param {McpQuestion} question @returns {Promise<McpAnswer>}
 */
export function askUser(question) {
  const answer = before.then(() => shown(question));
  before = answer.catch(() => {});
  return answer;
}

/** @param {McpQuestion} question @returns {Promise<McpAnswer>} */
function shown({ server, message, schema, url }) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("mcp-question"));
  const form = /** @type {HTMLFormElement} */ (byId("mcp-question-form"));
  const properties = Object.entries(schema?.properties ?? {});
  say(byId("mcp-question-title"), t("{server} asks", { server }));
  byId("mcp-question-text").textContent = message;
  byId("mcp-question-fields").replaceChildren(
    ...properties.map(([name, field]) => labelled(name, field, schema?.required?.includes(name) ?? false)),
    ...(url ? [h("p", {}, h("code", { dir: "ltr" }, url))] : []),
  );
  return new Promise((resolve) => {
    /** @type {McpAnswer} */
    let answer;
    form.onsubmit = (event) => {
      event.preventDefault();
      const opens = url && URL.canParse(url) && isPage(new URL(url));
      if (opens) window.open(url, "_blank", "noopener");
      answer = url ? opens || null : valuesOf(form, properties);
      dialog.close();
    };
    byId("mcp-decline").onclick = () => {
      answer = null;
      dialog.close();
    };
    dialog.addEventListener("close", () => resolve(answer), { once: true });
    dialog.showModal();
  });
}

/** @param {string} name @param {Schema} field @param {boolean} required */
function labelled(name, field, required) {
  const { title = name, description } = field;
  const note = description && h("small", { dir: "auto" }, description);
  if (field.type === "boolean") {
    const box = h("input", { type: "checkbox", name, checked: field.default ?? false });
    return h("label", { class: "check" }, box, h("span", {}, title, note));
  }
  return h("label", { class: "field" }, title, control(name, field, required), note);
}

/** @param {string} name @param {Schema} field @param {boolean} required @returns {HTMLElement} */
function control(name, field, required) {
  const choices = choicesOf(field.type === "array" ? field.items : field);
  if (choices) {
    const chosen = [field.default ?? []].flat();
    const options = choices.map(([value, text]) => h("option", { value, selected: chosen.includes(value) }, text));
    return h("select", { name, required, multiple: field.type === "array" }, ...options);
  }
  const numeric = field.type === "number" || field.type === "integer";
  const input = h("input", { name, required, type: numeric ? "number" : (TYPES[field.format] ?? "text") });
  if (numeric) Object.assign(input, { min: field.minimum ?? "", max: field.maximum ?? "" });
  if (numeric) input.step = field.type === "integer" ? "1" : "any";
  const { minLength: least = 0, maxLength: most = Infinity } = field;
  if (least > 0 && least <= most) input.minLength = least; // else the browser throws
  if (most > 0 && most < Infinity && least <= most) input.maxLength = most;
  input.value = field.default ?? "";
  return input;
}

/** @type {Record<string, string>} format -> type of the field */
const TYPES = { email: "email", uri: "url", date: "date" };

/** @param {Schema} field @returns {[string, string][] | null} value and text of each */
function choicesOf(field) {
  const titled = field.oneOf ?? field.anyOf;
  if (titled) return titled.map((/** @type {Schema} */ one) => [one.const, one.title ?? one.const]);
  return field.enum?.map((/** @type {string} */ value, /** @type {number} */ i) => [
    value,
    field.enumNames?.[i] ?? value,
  ]);
}

/** @param {HTMLFormElement} form @param {[string, Schema][]} properties @returns {Record<string, any>} */
function valuesOf(form, properties) {
  /** @type {Record<string, any>} */
  const values = {};
  for (const [name, { type }] of properties) {
    const field = /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
    if (type === "boolean") values[name] = field.checked;
    else if (type === "array") values[name] = new FormData(form).getAll(name);
    else if (field.value !== "") values[name] = type === "string" ? field.value : Number(field.value);
  }
  return values;
}
