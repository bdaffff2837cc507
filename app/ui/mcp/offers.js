/** What a server of the Model Context Protocol offers to the user: prompts to write with, and resources to add. */
import { t } from "../../language/phrase.js";
import { bytesOf } from "../../sdk/base64.js";
import { h } from "../dom.js";
import { announce } from "../notices.js";

/**
 * @typedef {import("../../sdk/types.d.ts").McpServer} McpServer
 * @typedef {import("../../sdk/types.d.ts").McpPrompt} McpPrompt
 * @typedef {import("../../sdk/types.d.ts").McpResource} McpResource
 *
 * @typedef {object} Uses
 * @property {(text: string) => void} write puts a text into the message field, and shows it
 * @property {(files: File[]) => File[]} take adds files to the documents or to the next question; returns the others
 *
 * @typedef {object} Offer
 * @property {string} name
 * @property {string} [description]
 * @property {{ name: string, hint?: string, required: boolean }[]} fields that the user fills in
 * @property {import("../texts.js").Text} label of its button
 * @property {(given: Record<string, string>) => Promise<void>} use gets what is in the fields
 */

const EXPRESSION = /\{([^{}]+)\}/g; // of a resource's address, as RFC 6570 has them
const VALUE = /^\w+$/; // the only expression that is filled in here
const EXTENSION = /\.\w{1,5}$/;

/**
 * The list of a server's prompts and resources. They are asked for when the user opens it.
 * @param {string} name of the server @param {() => Promise<McpServer>} opened the connected server @param {Uses} uses
 */
export function offersList(name, opened, uses) {
  const list = h("ul", { "aria-label": t("Prompts and resources of {name}", { name }) });
  const attempt = async (/** @type {() => Promise<void>} */ work) => {
    details.querySelector(".form-error")?.remove();
    await work().catch((error) => list.before(h("p", { class: "form-error", role: "alert" }, error.message)));
  };
  const load = async () => {
    const server = await opened();
    const [prompts, resources] = await Promise.all([server.prompts(), server.resources()]);
    const usable = resources.filter(({ uri }) => expressionsOf(uri).every((expression) => VALUE.test(expression)));
    const offers = [
      ...prompts.map((prompt) => promptOffer(prompt, opened, uses)),
      ...usable.map((resource) => resourceOffer(resource, opened, uses)),
    ];
    const items = offers.map((offer) => item(offer, attempt));
    list.replaceChildren(...(items.length ? items : [h("li", {}, t("This server offers none."))]));
  };
  const toggled = () => {
    if (details.open && !list.firstChild) void attempt(load);
  };
  const props = { class: "mcp-tools", id: `mcp-offers-${name}`, on: { toggle: toggled } };
  const details = /** @type {HTMLDetailsElement} */ (
    h("details", props, h("summary", {}, t("Prompts and resources")), list)
  );
  return details;
}

/** @param {Offer} offer @param {(work: () => Promise<void>) => Promise<void>} attempt shows an error of the work */
function item({ name, description, fields, label, use }, attempt) {
  const inputs = fields.map(({ name, hint, required }) =>
    h("label", { class: "field" }, name, h("input", { name, required, placeholder: hint, autocomplete: "off" })),
  );
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const given = /** @type {Record<string, string>} */ (Object.fromEntries(new FormData(form)));
    void attempt(() => use(given));
  };
  const form = /** @type {HTMLFormElement} */ (
    h("form", { on: { submit } }, ...inputs, h("button", { class: "button" }, label))
  );
  return h("li", {}, h("code", {}, name), " ", h("small", { dir: "auto" }, description ?? ""), form);
}

/** @param {McpPrompt} prompt @param {() => Promise<McpServer>} opened @param {Uses} uses @returns {Offer} */
function promptOffer({ name, description, arguments: known = [] }, opened, { write }) {
  return {
    name,
    description,
    fields: known.map(({ name, description, required }) => ({ name, hint: description, required: required === true })),
    label: t("Write with {name}", { name }),
    async use(given) {
      const messages = await (await opened()).prompt(name, given);
      const texts = messages.flatMap(({ content }) => (typeof content === "string" ? content : content.map(textOf)));
      write(texts.filter((text) => text).join("\n\n"));
    },
  };
}

/** The text of a message's part; a picture has none. @param {{ type: string, text?: string }} part */
const textOf = ({ text }) => text ?? "";

/** @param {McpResource} resource @param {() => Promise<McpServer>} opened @param {Uses} uses @returns {Offer} */
function resourceOffer({ name, uri, description }, opened, { take }) {
  return {
    name,
    description: description ?? uri,
    fields: expressionsOf(uri).map((name) => ({ name, required: true })),
    label: t("Add {name}", { name }),
    async use(given) {
      const address = uri.replace(EXPRESSION, (_, variable) => encodeURIComponent(given[variable]));
      const files = (await (await opened()).read(address)).map(fileOf);
      const [refused] = take(files);
      if (refused)
        throw new Error(`${t("{name} is neither a document nor a picture or a sound.", { name: refused.name })}`);
      files.forEach(({ name }) => announce(t("{name} is added.", { name })));
    },
  };
}

/** @param {string} uri */
const expressionsOf = (uri) => [...uri.matchAll(EXPRESSION)].map(([, expression]) => expression);

/** A resource's content as a file. @param {{ uri: string, mimeType?: string, text?: string, blob?: string }} content */
function fileOf({ uri, mimeType = "", text, blob }) {
  const last = decodeURIComponent(uri.split(/[/?#]/).findLast((part) => part) ?? uri);
  const isText = text !== undefined;
  const name = isText && !EXTENSION.test(last) ? `${last}${mimeType === "text/markdown" ? ".md" : ".txt"}` : last;
  return new File([isText ? text : bytesOf(blob ?? "")], name, { type: mimeType || (isText ? "text/plain" : "") });
}
