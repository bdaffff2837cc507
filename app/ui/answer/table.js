/** A table of an answer, which scrolls sideways and can be copied as CSV. */
import { t } from "../../language/phrase.js";
import { copyButton } from "../copy.js";
import { h } from "../dom.js";
import { textWithTex } from "./math.js";

/** @param {DocumentFragment} content with the table @returns {HTMLElement} its block */
export function tableBlock(content) {
  const scroll = h(
    "div",
    { class: "wide", tabIndex: 0, role: "group", "aria-label": t("Table"), dir: "auto" },
    content,
  );
  const copy = copyButton(t("Copy as CSV"), () => csvOf(scroll));
  return h("div", { class: "block table" }, scroll, h("div", { class: "table-tools" }, copy));
}

/** The rows of a table as RFC 4180 has them. @param {Element} root */
export function csvOf(root) {
  const rows = [...root.querySelectorAll("tr")].map((row) =>
    [...row.cells].map((cell) => field(textWithTex(cell).trim())),
  );
  return rows.map((cells) => `${cells.join(",")}\r\n`).join("");
}

/** @param {string} text */
const field = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
