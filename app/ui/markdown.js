/**
 * Renders streamed Markdown. The text is split into top-level blocks and only changed blocks are rendered again, so an
 * answer neither flickers nor loses a selection. HTML in the text is shown as text; DOMPurify sanitises marked's output.
 */
import DOMPurify from "dompurify";
import { Marked } from "marked";
import { copyButton } from "./copy.js";
import { h } from "./dom.js";

/** @param {string} text */
const escape = (text) => text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ text }) => escape(text),
    // Text of a model must cause no request: an image becomes a link.
    image: ({ href, text }) => `<a href="${escape(href)}">${escape(text || href)}</a>`,
  },
});

const ALLOWED = {
  ALLOWED_TAGS:
    "a b br code del em h1 h2 h3 h4 h5 h6 hr i li ol p pre s strong sub sup table tbody td th thead tr ul blockquote".split(
      " ",
    ),
  ALLOWED_ATTR: ["href", "start", "align"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  RETURN_DOM_FRAGMENT: true,
};

/** @typedef {{ raw: string, element: HTMLElement, code?: HTMLElement, language?: HTMLElement }} Block */

export class Markdown {
  /** @type {Block[]} */
  #blocks = [];

  /** @param {HTMLElement} root holds the blocks */
  constructor(root) {
    this.root = root;
  }

  /** @param {string} text all of it so far @param {boolean} [growing] more is coming: half-written syntax is held back */
  render(text, growing = false) {
    const tokens = marked.lexer(growing ? settled(text) : text).filter((token) => token.type !== "space");
    tokens.forEach((token, index) => this.#place(token, index));
    for (const { element } of this.#blocks.splice(tokens.length)) element.remove();
  }

  /** @param {import("marked").Token} token @param {number} index */
  #place(token, index) {
    const old = this.#blocks[index];
    if (old?.raw === token.raw) return;
    if (token.type === "code" && old?.code && old.language) {
      old.language.textContent = languageOf(token); // a code block grows in place and keeps its button
      old.code.textContent = token.text;
      old.raw = token.raw;
      return;
    }
    const block = token.type === "code" ? codeBlock(token) : textBlock(token);
    if (old) old.element.replaceWith(block.element);
    else this.root.append(block.element);
    this.#blocks[index] = block;
  }
}

/** @param {import("marked").Token} token @returns {Block} */
function textBlock(token) {
  const html = marked.parser([token]);
  const fragment = /** @type {DocumentFragment} */ (/** @type {unknown} */ (DOMPurify.sanitize(html, ALLOWED)));
  for (const link of fragment.querySelectorAll("a"))
    Object.assign(link, { target: "_blank", rel: "noopener noreferrer" });
  const scrolls = token.type === "table";
  const props = scrolls
    ? { class: "block wide", tabIndex: 0, role: "group", "aria-label": "Table" }
    : { class: "block" };
  return { raw: token.raw, element: h("div", props, fragment) };
}

/** @param {import("marked").Token} token @returns {Block} */
function codeBlock(token) {
  const code = h("code", {}, /** @type {import("marked").Tokens.Code} */ (token).text);
  const language = h("span", {}, languageOf(token));
  const copy = copyButton("Copy the code", () => code.textContent ?? "");
  const pre = h("pre", { tabIndex: 0, role: "group", "aria-label": "Code" }, code);
  const element = h("div", { class: "block code" }, h("div", { class: "code-head" }, language, copy), pre);
  return { raw: token.raw, element, code, language };
}

/** @param {import("marked").Token} token */
function languageOf(token) {
  return /** @type {import("marked").Tokens.Code} */ (token).lang?.split(/\s/)[0] || "text";
}

/**
 * The part of a streamed text whose rendering is stable. Holds back or closes a lone list marker (which would turn the
 * line above into a heading), the start of a table, and open emphasis.
 * @param {string} text
 */
function settled(text) {
  const fences = text.match(/^ {0,3}(```|~~~)/gm)?.length ?? 0;
  if (fences % 2) return text;
  text = text.replace(/\n[ \t]*(?:[-=*+#>|`~]+|\d+[.)]?)[ \t]*$/, "");
  const start = text.lastIndexOf("\n\n") + 1;
  const last = text.slice(start);
  if (/^\n?\|[^\n]*(\n[|: -]*)?$/.test(last)) return text.slice(0, start); // a table's head row without its rule
  for (const mark of ["**", "`"]) if (last.split(mark).length % 2 === 0) text = text.trimEnd() + mark;
  return text;
}
