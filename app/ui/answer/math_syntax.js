/**
 * Finds mathematics in Markdown: `\(..\)`, `\[..\]`, `$$..$$`, and `$..$` unless it may be an amount of money. A plugin of
 * markdown-it; every rule takes linear time.
 */

/**
 * @typedef {import("markdown-it").MarkdownIt} MarkdownIt
 * @typedef {import("markdown-it").StateInline} StateInline
 * @typedef {import("markdown-it").StateBlock} StateBlock
 * @typedef {{ end: number, tex: string, display: boolean }} Found `end`: after the closing delimiter
 */

const DELIMITED = [
  { open: "$$", close: "$$", display: true },
  { open: "\\[", close: "\\]", display: true },
  { open: "\\(", close: "\\)", display: false },
];
const WORD = /[\p{L}\p{N}]/u;
const MONEY = /^[\d.,]+(?:\s*[-–/]|\s+\p{L}{2,}|\s*$)/u; // "5 or 10", "20 million", "5-10", "5"
const SPACE = /\s/;

/** @param {MarkdownIt} markdown */
export function math(markdown) {
  markdown.inline.ruler.before("escape", "math", inlineRule);
  markdown.block.ruler.before("fence", "math_block", blockRule, {
    alt: ["paragraph", "reference", "blockquote", "list"],
  });
  const { escapeHtml } = markdown.utils;
  markdown.renderer.rules.math = (tokens, i) =>
    `<code data-math="${tokens[i].info}">${escapeHtml(tokens[i].content)}</code>`;
  markdown.renderer.rules.math_block = (tokens, i) =>
    `<p><code data-math="display">${escapeHtml(tokens[i].content)}</code></p>`;
}

/** Where mathematics begins that a growing text has not closed yet; -1 where none does. @param {string} text */
export function openMath(text) {
  let first = -1;
  for (const { open, close } of DELIMITED) {
    const at = text.lastIndexOf(open);
    const isOpen = open === close ? text.split(open).length % 2 === 0 : text.indexOf(close, at) < 0;
    if (at >= 0 && isOpen && (first < 0 || at < first)) first = at;
  }
  return first;
}

/** @param {StateInline} state @param {boolean} silent */
function inlineRule(state, silent) {
  const found = delimited(state) ?? dollars(state.src, state.pos, state.posMax);
  if (!found) return false;
  if (!silent) {
    const token = state.push("math", "code", 0);
    token.content = found.tex;
    token.info = found.display ? "display" : "inline";
  }
  state.pos = found.end;
  return true;
}

/** @param {StateInline} state @returns {Found | null} */
function delimited(state) {
  const { src, pos, posMax, env } = state;
  const kind = DELIMITED.find(({ open }) => src.startsWith(open, pos));
  if (!kind) return null;
  /** @type {Record<string, string>} texts without a closing delimiter after one where it was looked for */
  const unclosed = /** @type {any} */ (env.unclosedMath ??= {});
  if (unclosed[kind.open] === src) return null;
  const start = pos + kind.open.length;
  const close = src.indexOf(kind.close, start);
  if (close < 0 || close >= posMax) {
    if (close < 0) unclosed[kind.open] = src;
    return null;
  }
  const tex = src.slice(start, close).trim();
  return tex ? { end: close + kind.close.length, tex, display: kind.display } : null;
}

/** `$..$` as Pandoc has it, without what may be money. @param {string} src @param {number} pos @param {number} posMax @returns {Found | null} */
function dollars(src, pos, posMax) {
  if (src[pos] !== "$" || (pos > 0 && (WORD.test(src[pos - 1]) || src[pos - 1] === "$"))) return null;
  const close = unescaped(src, pos + 1, posMax);
  if (close < 0) return null;
  const tex = src.slice(pos + 1, close);
  const after = src[close + 1] ?? "";
  if (!tex || SPACE.test(tex[0]) || SPACE.test(tex[tex.length - 1]) || WORD.test(after) || after === "$") return null;
  return MONEY.test(tex) && !/[\\^_=+]/.test(tex) ? null : { end: close + 1, tex, display: false };
}

/** The next dollar sign without a backslash before it. @param {string} src @param {number} from @param {number} posMax */
function unescaped(src, from, posMax) {
  for (let at = from; at < posMax; at++) {
    if (src[at] === "\\") at++;
    else if (src[at] === "$") return at;
  }
  return -1;
}

/**
 * Mathematics of whole lines: may not contain an empty line.
 * @param {StateBlock} state @param {number} startLine @param {number} endLine @param {boolean} silent
 */
function blockRule(state, startLine, endLine, silent) {
  if (state.sCount[startLine] - state.blkIndent >= 4) return false;
  const first = lineOf(state, startLine);
  const kind = DELIMITED.find(({ open, display }) => display && first.startsWith(open));
  if (!kind) return false;
  /** @type {Record<string, number>} lines before which an opening delimiter has no closing one */
  const unclosed = /** @type {any} */ (state.env.unclosedBlocks ??= {});
  if (startLine < (unclosed[kind.open] ?? 0)) return false;
  let rest = first.slice(kind.open.length);
  const lines = [];
  let line = startLine;
  // The search ends at the first closing delimiter: else each of many lines that begin alike would read all the others.
  while (!rest.includes(kind.close)) {
    lines.push(rest);
    line++;
    if (line >= endLine || state.isEmpty(line) || state.sCount[line] < state.blkIndent) {
      unclosed[kind.open] = line;
      return false;
    }
    rest = lineOf(state, line);
  }
  const last = rest.slice(0, -kind.close.length);
  if (!rest.endsWith(kind.close) || last.includes(kind.close)) {
    unclosed[kind.open] = line; // two formulas, or text after one
    return false;
  }
  const tex = [...lines, last].join("\n").trim();
  if (!tex) return false;
  if (silent) return true;
  const token = state.push("math_block", "p", 0);
  token.content = tex;
  token.map = [startLine, line + 1];
  state.line = line + 1;
  return true;
}

/** @param {StateBlock} state @param {number} line */
function lineOf(state, line) {
  return state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]).trimEnd();
}
