/** The sources of an answer: citations in its text that unfold passages, and the list of passages below it. */
import { joined, t } from "../language/phrase.js";
import { CITATION, cited, matching } from "../retrieval/prompt.js";
import { h } from "./dom.js";

/** @typedef {import("../retrieval/prompt.js").Source} Source */

/**
 * Shows the list of an answer's sources and makes its citations clickable.
 * @param {HTMLElement} body the answer, rendered @param {string} answer @param {Source[]} sources
 * @returns {HTMLElement}
 */
export function showSources(body, answer, sources) {
  if (!sources.length) return h("p", { class: "sources none" }, t("Nothing in the documents matched the question."));
  const named = cited(answer, sources.length);
  const supporting = named.length ? named : matching(answer, sources);
  const items = sources.map((source, i) => sourceItem(source, i + 1, supporting.includes(i + 1)));
  const open = (/** @type {number} */ number) => {
    rest.open ||= !supporting.includes(number);
    items[number - 1].open = true;
    items[number - 1].scrollIntoView({ block: "nearest" });
    items[number - 1].querySelector("summary")?.focus({ preventScroll: true });
  };
  mark(body, sources, open);
  const shown = supporting.map((number) => items[number - 1]);
  const others = items.filter((_, i) => !supporting.includes(i + 1));
  const rests = { n: others.length };
  const rest = h(
    "details",
    { class: "sources-rest" },
    h("summary", {}, shown.length ? t("{n} more given to the model", rests) : t("{n} given to the model", rests)),
    ...others,
  );
  const label = named.length
    ? t("Sources")
    : supporting.length
      ? t("Sources, found by the answer's words")
      : t("The answer names no source");
  return h(
    "section",
    { class: "sources", "aria-label": t("Sources") },
    h("h3", {}, label),
    ...shown,
    others.length > 0 && rest,
  );
}

/** Where a passage is from, in words. @param {Source} source */
function place({ document, page, heading }) {
  return joined([document, page && t("p. {page}", { page }), heading]);
}

/** @param {Source} source @param {number} number @param {boolean} supports */
function sourceItem(source, number, supports) {
  const summary = h(
    "summary",
    {},
    h("span", { class: "source-number" }, `[${number}]`),
    " ",
    h("bdi", {}, place(source)),
  );
  return h(
    "details",
    { class: supports ? "source supporting" : "source" },
    summary,
    h("blockquote", { dir: "auto" }, source.text),
  );
}

/**
 * Turns citations in a rendered text into buttons, outside code and links.
 * @param {HTMLElement} body @param {Source[]} sources @param {(number: number) => void} open
 */
function mark(body, sources, open) {
  const walker = document.createTreeWalker(body, NodeFilter.SHOW_TEXT);
  /** @type {Text[]} */
  const texts = [];
  while (walker.nextNode()) {
    const node = /** @type {Text} */ (walker.currentNode);
    if (!node.parentElement?.closest("code, pre, a, button")) texts.push(node);
  }
  for (const node of texts) {
    const parts = pieces(node.data, sources, open);
    if (parts.length > 1) node.replaceWith(...parts);
  }
}

/** @param {string} text @param {Source[]} sources @param {(number: number) => void} open @returns {(string | HTMLElement)[]} */
function pieces(text, sources, open) {
  /** @type {(string | HTMLElement)[]} */
  const out = [];
  let from = 0;
  for (const match of text.matchAll(CITATION)) {
    const numbers = match[1].split(/[,;]/).map(Number);
    if (!numbers.every((number) => number >= 1 && number <= sources.length)) continue;
    out.push(text.slice(from, match.index));
    for (const number of numbers) {
      const label = t("Source {number}: {place}", { number, place: place(sources[number - 1]) });
      const props = {
        type: "button",
        class: "cite",
        title: label,
        "aria-label": label,
        on: { click: () => open(number) },
      };
      out.push(h("button", props, String(number)));
    }
    from = match.index + match[0].length;
  }
  return [...out, text.slice(from)];
}
