/**
 * Renders streamed Markdown. The text is split into top-level blocks and only changed blocks are rendered again, so an
 * answer neither flickers nor loses a selection. HTML in the text is shown as text, but for what extra_syntax.js allows; DOMPurify sanitises the output.
 *
 * Text of a model may be anything. markdown-it takes linear time and limits nesting. A text that is too long for it, or
 * that it cannot parse, is shown as it is.
 */
import DOMPurify from "dompurify";
import MarkdownIt from "markdown-it";
import { CodeBlock } from "./answer/code_block.js";
import { extras, markTasks } from "./answer/extra_syntax.js";
import { newBudget, typeset } from "./answer/math.js";
import { math, openMath } from "./answer/math_syntax.js";
import { tableBlock } from "./answer/table.js";
import { h } from "./dom.js";

/** @typedef {import("markdown-it").Token} Token */
/**
 * @typedef {{ raw: string, element: HTMLElement, code?: CodeBlock, giveBack?: () => void }} Block
 *   `giveBack`: what its formulas took of the budget
 */
/**
 * @typedef {{ raw: string, tokens: Token[], text: string, goesOn?: boolean }} Part a top-level block of the text
 *   `text`: what to show of one without tokens, `goesOn`: it is the next piece of plain text
 */

const MAX_LENGTH = 300_000; // characters: about a second in the worst case

const MAX_INLINE = { characters: 20_000, tokens: 2_000 }; // of a paragraph: a longer one is shown as it is

const MAX_TOKENS = 20_000; // of a block, such as a list or a table
const MAX_GROWING = 4_000; // tokens of a block that grows: each change renders all of it, so a longer one is shown as it is until it ends

const MAX_BLOCKS = 10_000; // of a text
const MAX_NESTING = 50; // of blocks

const PIECE = 4_000; // characters of an element of plain text: when one grows, the browser lays all of it out again
const LONGEST_LINE = 20_000; // of plain text: a longer one is cut, too
const PLAIN_AT_ONCE = 20_000; // characters of plain text in a frame: their layout takes longer than to render them

const LONGEST_HELD = 600; // characters of an open formula

const markdown = new MarkdownIt({ html: false, linkify: true, breaks: true, maxNesting: MAX_NESTING + 1 });
markdown.use(math).use(extras);
markdown.core.ruler.at("inline", ({ tokens, md, env }) => {
  for (const { type, content, children } of tokens) {
    if (type !== "inline" || !children) continue;
    if (content.length <= MAX_INLINE.characters) md.inline.parse(content, md, env, children);
    if (children.length > MAX_INLINE.tokens) children.length = 0;
  }
});
// After linkify, which makes three tokens of each address in what was one text.
markdown.core.ruler.after("linkify", "too_long", ({ tokens, Token }) => {
  const lineOf = (/** @type {string} */ text) => Object.assign(new Token("text", "", 0), { content: text });
  for (const { type, content, children } of tokens) {
    if (type !== "inline" || !children) continue;
    if (children.length > 0 && children.length <= MAX_INLINE.tokens) continue;
    children.length = 0;
    for (const [i, line] of content.split("\n").entries())
      children.push(...(i ? [new Token("softbreak", "br", 0)] : []), lineOf(line));
  }
});
const { escapeHtml } = markdown.utils;
// Text of a model must cause no request: an image becomes a link.
markdown.renderer.rules.image = (tokens, i) => {
  const address = escapeHtml(`${tokens[i].attrGet("src") ?? ""}`);
  return `<a href="${address}">${escapeHtml(tokens[i].content) || address}</a>`;
};
// The page's policy forbids style attributes.
for (const cell of ["th_open", "td_open"])
  markdown.renderer.rules[cell] = (tokens, i) => {
    const align = /text-align:(\w+)/.exec(`${tokens[i].attrGet("style")}`)?.[1];
    return `<${tokens[i].tag}${align ? ` align="${align}"` : ""}>`;
  };

const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/; // characters that change the direction of a text

const ALLOWED = {
  ALLOWED_TAGS:
    "a b br code del em h1 h2 h3 h4 h5 h6 hr i li ol p pre s strong sub sup table tbody td th thead tr ul blockquote".split(
      " ",
    ),
  ALLOWED_ATTR: ["href", "start", "align"],
  ADD_URI_SAFE_ATTR: ["start", "align"], // no addresses
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
};

export class Markdown {
  /** @type {Block[]} */
  #blocks = [];

  /** Definitions of links, as JSON: one that arrives or grows changes blocks before it. */
  #references = "";
  #version = 0; // of them
  #formulas = newBudget();
  /** @type {{ text: string, parts: Part[] } | null} of the last rendering, which may not have shown all of it */
  #parsed = null;

  /** @param {HTMLElement} root holds the blocks */
  constructor(root) {
    this.root = root;
  }

  /**
   * Shows a text, or its next blocks if all of them take too long: then another call goes on.
   * @param {string} text all of it so far @param {boolean} [growing] more is coming: half-written syntax is held back
   * @param {number} [ms] after which it ends @returns {boolean} whether all is shown
   */
  render(text, growing = false, ms = Infinity) {
    text = text.replace(/\r\n?/g, "\n"); // as markdown-it does; else its line numbers would not be those of the text
    try {
      const parts = this.#partsOf(growing ? settled(text) : text, growing);
      const until = performance.now() + ms;
      let plain = ms === Infinity ? Infinity : PLAIN_AT_ONCE;
      for (const [index, part] of parts.entries()) {
        const isNew = this.#place(part, index, growing && index === parts.length - 1);
        if (isNew && !part.tokens.length) plain -= part.text.length;
        if (isNew && (performance.now() > until || plain < 0) && index < parts.length - 1) return false;
      }
      for (const { element, giveBack } of this.#blocks.splice(parts.length)) {
        giveBack?.();
        element.remove();
      }
    } catch (error) {
      console.warn("An answer is shown as plain text:", error);
      this.#blocks = [];
      this.root.replaceChildren(plainText(text));
    }
    if (!growing) this.#parsed = null; // it is shown
    return true;
  }

  /** @param {string} text @param {boolean} growing */
  #partsOf(text, growing) {
    if (this.#parsed?.text !== text) {
      const parts = text.length > MAX_LENGTH ? plain(text) : partsOf(text, this.#versionOf);
      this.#parsed = { text, parts };
    }
    const { parts } = this.#parsed;
    const last = parts.at(-1);
    return growing && last && sizeOf(last) > MAX_GROWING ? [...parts.slice(0, -1), ...plain(last.text)] : parts;
  }

  /** @param {Record<string, unknown>} references */
  #versionOf = (references) => {
    const before = this.#references;
    this.#references = JSON.stringify(references);
    return this.#references === before ? this.#version : ++this.#version;
  };

  /**
   * Shows a block, if it is not there already.
   * @param {Part} part @param {number} index @param {boolean} growing more of it is coming
   */
  #place(part, index, growing) {
    const old = this.#blocks[index];
    const [token] = part.tokens;
    const isCode = token?.type === "fence" || token?.type === "code_block";
    if (isCode && old?.code) {
      old.raw = part.raw;
      return old.code.update(codeOf(token), languageOf(token), growing); // grows in place and keeps its buttons
    }
    if (old?.raw === part.raw) return false;
    old?.giveBack?.();
    const block = isCode ? codeBlock(part, growing) : token ? textBlock(part, this.#formulas) : plainBlock(part);
    if (old) old.element.replaceWith(block.element);
    else this.root.append(block.element);
    this.#blocks[index] = block;
    return true;
  }
}

/** Tokens of a block. @param {Part} part */
const sizeOf = ({ tokens }) => tokens.reduce((sum, { children }) => sum + 1 + (children?.length ?? 0), 0);

/**
 * Splits a text into its top-level blocks.
 * @param {string} text @param {(references: Record<string, unknown>) => number} versionOf the definitions of links
 * @returns {Part[]}
 */
function partsOf(text, versionOf) {
  /** @type {import("markdown-it").Env} */
  const environment = {};
  const tokens = markdown.parse(text, environment);
  const lines = text.split("\n");
  const ends = tokens.filter(({ level, nesting }) => level === 0 && nesting <= 0);
  if (ends.length > MAX_BLOCKS) return plain(text);
  const references = versionOf(environment.references ?? {});
  /** @type {Part[]} */
  const parts = [];
  let first = 0;
  tokens.forEach((token, i) => {
    if (token.level > 0 || token.nesting > 0) return;
    const [from, to] = tokens[first].map ?? [0, 0];
    const raw = lines.slice(from, to).join("\n");
    const block = tokens.slice(first, i + 1);
    first = i + 1;
    const lost = block.some(({ level }) => level >= MAX_NESTING); // markdown-it leaves out what is nested deeper
    const isLong = block.some(({ type, content }) => type === "inline" && content.length > MAX_INLINE.characters);
    const part = { raw: `${references} ${raw}`, tokens: block, text: raw };
    parts.push(...(lost || isLong || sizeOf(part) > MAX_TOKENS ? plain(raw) : [part]));
  });
  return parts;
}

/** A text as sanitized HTML for other programs, with formulas as TeX. @param {string} text */
export function htmlOf(text) {
  try {
    if (text.length <= MAX_LENGTH) return sanitized(markdown.render(text));
  } catch {
    // It cannot be parsed.
  }
  return `<pre>${escapeHtml(text)}</pre>`;
}

/** HTML without what an answer may not have. @param {string} html */
export const sanitized = (html) => DOMPurify.sanitize(html, ALLOWED);

/** A text as it is, in pieces that stay the same while it grows: whole lines where that is possible. @param {string} text @returns {Part[]} */
function plain(text) {
  /** @type {Part[]} */
  const parts = [];
  for (let from = 0; from < text.length || !from;) {
    const to = endOfPiece(text, from);
    const piece = text.slice(from, to);
    parts.push({ raw: `plain ${piece}`, tokens: [], text: piece, goesOn: from > 0 });
    from = to + (text[to] === "\n" || to === from ? 1 : 0); // the next element begins a line
  }
  return parts;
}

/** A long text that is no answer's, in elements that the browser lays out where they are seen. @param {string} text */
export const plainPieces = (text) => plain(text).map((part) => h("div", { class: "piece" }, part.text));

/** @param {string} text @param {number} from */
function endOfPiece(text, from) {
  for (const length of [PIECE, LONGEST_LINE]) {
    if (text.length - from <= length) return text.length;
    const line = text.lastIndexOf("\n", from + length);
    if (line >= from) return line;
  }
  const blank = text.lastIndexOf(" ", from + LONGEST_LINE);
  if (blank >= from) return blank + 1;
  const end = from + LONGEST_LINE;
  return isPair(text, end) ? end - 1 : end;
}

/** Whether a place is within a character of two units. @param {string} text @param {number} at */
const isPair = (text, at) => /^[\ud800-\udbff][\udc00-\udfff]/.test(text.slice(at - 1, at + 1));

/** @param {string} text @param {boolean} [goesOn] */
const plainText = (text, goesOn) =>
  h("div", { class: goesOn ? "block plain goes-on" : "block plain", dir: "auto" }, text);

/** @param {Part} part @param {import("./answer/math.js").Budget} formulas @returns {Block} */
function textBlock({ raw, tokens }, formulas) {
  const html = markdown.renderer.render(tokens, markdown.options, {});
  const fragment = DOMPurify.sanitize(html, { ...ALLOWED, RETURN_DOM_FRAGMENT: true });
  for (const link of fragment.querySelectorAll("a")) {
    if (link.getAttribute("href")) showTarget(link);
    else link.replaceWith(...link.childNodes); // it leads nowhere, or where none may lead
  }
  markTasks(fragment);
  const giveBack = typeset(fragment, formulas);
  const isTable = tokens[0].type === "table_open";
  const element = isTable ? tableBlock(fragment) : h("div", { class: "block", dir: "auto" }, fragment);
  return { raw, element, giveBack };
}

/** Opens a link in a new tab, and shows where it leads unless its text begins with that. @param {HTMLAnchorElement} link */
function showTarget(link) {
  Object.assign(link, { target: "_blank", rel: "noopener noreferrer", title: link.href });
  const place = link.host || link.pathname; // of mailto:, the addresses
  if (place && !names(link.textContent ?? "", place))
    link.append(h("span", { class: "link-host", dir: "ltr" }, ` (${place})`));
}

/** Whether a text is an address at a place: not one that only has the place's name in it, as evil.test/?bank.test has. @param {string} text @param {string} place */
function names(text, place) {
  const address = text.trim().replace(/^(?:https?:\/\/|mailto:)/i, "");
  const after = address.slice(place.length, place.length + 1);
  return address.toLowerCase().startsWith(place.toLowerCase()) && /^[/?#]?$/.test(after) && !TURNS.test(text);
}

/** @param {Part} part @param {boolean} growing @returns {Block} */
function codeBlock({ raw, tokens: [token] }, growing) {
  const code = new CodeBlock(codeOf(token), languageOf(token), growing);
  return { raw, element: code.element, code };
}

/** @param {Part} part @returns {Block} */
const plainBlock = ({ raw, text, goesOn }) => ({ raw, element: plainText(text, goesOn) });

/** @param {Token} token */
const codeOf = (token) => token.content.replace(/\n$/, "");

/** @param {Token} token */
const languageOf = (token) => token.info.trim().split(/\s/)[0] ?? "";

/**
 * The part of a streamed text whose rendering is stable. Holds back or closes a lone list marker (which would turn the
 * line above into a heading), the start of a table, an open formula, and open emphasis.
 * @param {string} text
 */
function settled(text) {
  const fences = text.match(/^ {0,3}(```|~~~)/gm)?.length ?? 0;
  if (fences % 2) return text;
  const line = text.lastIndexOf("\n");
  if (line >= 0 && /^[ \t]*(?:[-=*+#>|`~]+|\d+[.)]?)[ \t]*$/.test(text.slice(line + 1))) text = text.slice(0, line);
  const start = text.lastIndexOf("\n\n") + 1;
  let last = text.slice(start);
  const math = openMath(last);
  if (math >= 0 && last.length - math < LONGEST_HELD) {
    last = last.slice(0, math);
    text = text.slice(0, start + math).trimEnd();
  }
  if (/^\n?\|[^\n]*(\n[|: -]*)?$/.test(last)) return text.slice(0, start); // a table's head row without its rule
  for (const mark of ["**", "`"]) if (last.split(mark).length % 2 === 0) text = text.trimEnd() + mark;
  return text;
}
