/**
 * What a server of the Model Context Protocol offers to the user: prompts to write with, and resources to add. Each use of
 * one is a call, which servers.js tells and logs.
 */
import { t } from "../../language/phrase.js";
import { bytesOf } from "../../sdk/base64.js";
import { h } from "../dom.js";
import { LongList } from "../long_list.js";
import { expanded, variablesOf } from "./uri_template.js";

/**
 * @typedef {import("../../sdk/types.d.ts").McpServer} McpServer
 * @typedef {import("../../sdk/types.d.ts").McpPrompt} McpPrompt
 * @typedef {import("../../sdk/types.d.ts").McpResource} McpResource
 *
 * @typedef {object} Uses
 * @property {(text: string) => void} write adds a text to the message field, and shows it
 * @property {(files: File[]) => File[]} take adds files to the documents or to the next question; returns the others
 *
 * @typedef {object} Server a server, as the sheet has it
 * @property {string} name
 * @property {() => Promise<McpServer>} opened the connected server
 * @property {McpServer["prompt"]} prompt
 * @property {McpServer["read"]} read
 *
 * @typedef {object} Offer
 * @property {string} name
 * @property {string} [description]
 * @property {{ name: string, hint?: string, required: boolean }[]} fields that the user fills in
 * @property {import("../texts.js").Text} label of its button
 * @property {(given: Record<string, string>) => Promise<void>} use gets what is in the fields
 */

const EXTENSION = /\.\w{1,5}$/;

/**
 * The list of a server's prompts and resources. They are asked for when the user opens it.
 * @param {Server} server @param {Uses} uses
 */
export function offersList(server, uses) {
  const { name } = server;
  const list = h("ul", { "aria-label": t("Prompts and resources of {name}", { name }) });
  const rows = new LongList(list, list);
  const attempt = async (/** @type {() => Promise<void>} */ work) => {
    details.querySelector(".form-error")?.remove();
    await work().catch((error) => list.before(h("p", { class: "form-error", role: "alert" }, error.message)));
  };
  const load = async () => {
    const opened = await server.opened();
    const [prompts, resources] = await Promise.all([opened.prompts(), opened.resources()]);
    const usable = resources.filter(({ uri, template }) => !template || variablesOf(uri));
    const offers = [
      ...prompts.map((prompt) => promptOffer(prompt, server, uses)),
      ...usable.map((resource) => resourceOffer(resource, server, uses)),
    ];
    const none = { key: "", draw: () => h("li", {}, t("This server offers none.")) };
    const items = offers.map((offer, index) => ({ key: `${index}`, draw: () => item(offer, attempt) }));
    rows.show(items.length ? items : [none]);
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
    const given = [...new FormData(form)].filter(([, value]) => value !== ""); // the rest is left out
    void attempt(() => use(/** @type {Record<string, string>} */ (Object.fromEntries(given))));
  };
  const form = /** @type {HTMLFormElement} */ (
    h("form", { on: { submit } }, ...inputs, h("button", { class: "button" }, label))
  );
  return h("li", {}, h("code", {}, name), " ", h("small", { dir: "auto" }, description ?? ""), form);
}

/** @param {McpPrompt} prompt @param {Server} server @param {Uses} uses @returns {Offer} */
function promptOffer({ name, description, arguments: known = [] }, server, { write }) {
  return {
    name,
    description,
    fields: known.map(({ name, description, required }) => ({ name, hint: description, required: required === true })),
    label: t("Write with {name}", { name }),
    async use(given) {
      const messages = await server.prompt(name, given);
      const texts = messages.flatMap(({ content }) => (typeof content === "string" ? content : content.map(textOf)));
      const text = texts.filter((text) => text).join("\n\n");
      if (!text) throw new Error(`${t("This prompt has no text.")}`);
      write(text);
    },
  };
}

/** The text of a message's part; a picture has none. @param {{ type: string, text?: string }} part */
const textOf = ({ text }) => text ?? "";

/** @param {McpResource} resource @param {Server} server @param {Uses} uses @returns {Offer} */
function resourceOffer({ name, uri, description, template }, server, { take }) {
  return {
    name,
    description: description ?? uri,
    fields: (template && variablesOf(uri)) || [],
    label: t("Add {name}", { name }),
    async use(given) {
      const address = template ? expanded(uri, given) : uri;
      const files = (await server.read(address)).map((content) => fileOf(content, server.name));
      const [refused] = take(files);
      if (refused)
        throw new Error(
          `${t("{name} is neither a document nor a picture, a video or a sound.", { name: refused.name })}`,
        );
    },
  };
}

/**
 * A resource's content as a file. Its name has the server and the whole path: a document replaces one of its name.
 * @param {{ uri: string, mimeType?: string, text?: string, blob?: string }} content @param {string} server
 */
function fileOf({ uri, mimeType = "", text, blob }, server) {
  const path = uri.replace(/[?#].*$/, "").replace(/^[a-z][a-z0-9+.-]*:\/*/i, "");
  const name = [server, ...decoded(path).split(/[/\\]+/)].filter((part) => part).join(" - ");
  if (text === undefined) return new File([bytesOf(blob ?? "")], name, { type: mimeType });
  const ending = EXTENSION.test(name) ? "" : mimeType === "text/markdown" ? ".md" : ".txt";
  return new File([text], name + ending, { type: mimeType.startsWith("text/") ? mimeType : "text/plain" });
}

/** @param {string} path */
function decoded(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
