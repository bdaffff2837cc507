/**
 * Joins the text items of PDF pages to lines, and lines to paragraphs with their page. Larger letters mark headings.
 */

/**
 * @typedef {import("./split.js").Block} Block
 * @typedef {{ text: string, top: number, left: number, height: number, page: number }} Line `top` grows downwards
 */

const LARGER = 1.15; // letters of a heading: at least this times the body's height
const MAX_HEADING = 120; // characters of a heading
const APART = 1.7; // line heights between two lines that begin a new paragraph

const LEADERS = /(?: ?\.){4,} ?/g; // dot leaders in a table of contents

/** @typedef {{ str: string, transform: number[], width: number, height: number, hasEOL: boolean }} Item of pdf.js */

/** Joins text items to lines. @param {Item[]} items @param {number} page @returns {Line[]} */
export function linesOf(items, page) {
  /** @type {Line[]} */
  const lines = [];
  /** @type {Line | null} */
  let line = null;
  let end = 0;
  let last = ""; // of the line's items
  for (const { str, transform, width, height, hasEOL } of items) {
    const [left, top] = [transform[4], -transform[5]];
    if (str && line && Math.abs(top - line.top) > Math.max(height, line.height) / 2) line = null;
    if (str.trim() && !line) lines.push((line = { text: "", top, left, height: 0, page }));
    if (line && str) {
      const gap = line.text && left - end > height * 0.15 && !/\s$/.test(last) && !/^\s/.test(str);
      line.text += (gap ? " " : "") + str;
      line.height = Math.max(line.height, height);
      end = left + width;
      last = str;
    }
    if (hasEOL) line = null;
  }
  return lines.filter(({ text }) => text.trim());
}

/** Joins lines to paragraphs. @param {Line[]} all @returns {Block[]} */
export function blocksOf(all) {
  const lines = withoutMargins(all);
  const body = bodyHeight(lines);
  /** @type {Block[]} */
  const blocks = [];
  let heading = "";
  /** @type {string[]} parts of a paragraph, blanks included; a regex on one growing text would copy it */
  let parts = [];
  /** @type {Line | null} */
  let before = null;
  let page = 1;
  const flush = () => {
    const text = parts.join("").trim();
    if (text) blocks.push({ text, page, ...(heading ? { heading } : {}) });
    parts = [];
  };
  let inHeading = false;
  for (const line of lines) {
    const words = line.text.replace(/\s+/g, " ").replace(LEADERS, " ").trim();
    if (line.height > body * LARGER && words.length <= MAX_HEADING && /\p{L}/u.test(words)) {
      flush();
      const continues = inHeading && before?.page === line.page && line.top - before.top < line.height * APART;
      heading = continues ? `${heading} ${words}`.slice(0, 2 * MAX_HEADING) : words;
      [before, inHeading] = [line, true];
      continue;
    }
    inHeading = false;
    const step = before ? line.top - before.top : 0;
    const newPage = before !== null && before.page !== line.page;
    if (
      !before || newPage
        ? /[.!?:]["'”’)]*$/.test(parts.at(-1) ?? ".")
        : step > line.height * APART || step < -line.height
    )
      flush();
    if (!parts.length) page = line.page;
    append(parts, words);
    before = line;
  }
  flush();
  return blocks;
}

/** Removes headers and footers: first and last lines that recur on many pages, digits aside. @param {Line[]} lines */
function withoutMargins(lines) {
  const edges = lines.filter(({ page }, i) => lines[i - 1]?.page !== page || lines[i + 1]?.page !== page);
  /** @type {Map<string, number>} */
  const counts = new Map();
  const withoutDigits = (/** @type {Line} */ { text }) => text.replace(/\d+/g, "#").replace(/\s+/g, " ").trim();
  for (const line of edges) counts.set(withoutDigits(line), (counts.get(withoutDigits(line)) ?? 0) + 1);
  const pages = new Set(lines.map(({ page }) => page)).size;
  const margins = new Set(edges.filter((line) => (counts.get(withoutDigits(line)) ?? 0) >= Math.max(3, pages / 3)));
  return lines.filter((line) => !margins.has(line));
}

/** Appends a line; joins a word that was hyphenated at the line's end. @param {string[]} parts @param {string} line */
function append(parts, line) {
  const last = parts.pop();
  if (last === undefined) parts.push(line);
  else if (/\p{L}[-\u00ad\u2010]$/u.test(last) && /^\p{Ll}/u.test(line)) parts.push(last.slice(0, -1), line);
  else parts.push(last, ` ${line}`);
}

/** The most frequent height of letters: the body's. @param {Line[]} lines */
function bodyHeight(lines) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (const { height, text } of lines) {
    const rounded = Math.round(height * 2) / 2;
    counts.set(rounded, (counts.get(rounded) ?? 0) + text.length);
  }
  return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0] ?? 0;
}
