/**
 * Splits documents into passages that are short enough to embed and to quote. A passage never crosses a heading. Long
 * sections are cut between sentences; each passage repeats the last sentences of the previous one, for context.
 */

import { withSignal } from "../sdk/with_signal.js";
import { Pauses } from "./pauses.js";

/**
 * @typedef {object} Block a paragraph, a list, a piece of code
 * @property {string} text
 * @property {string} [heading] the headings above it: "Guide › Install"
 * @property {number} [page] from 1
 *
 * @typedef {object} Passage
 * @property {string} text
 * @property {string} [heading]
 * @property {number} [page] its first page
 *
 * @typedef {object} Limits in tokens
 * @property {number} size most tokens of a passage
 * @property {number} overlap most tokens that two passages share
 * @property {(text: string) => Promise<number>} count counts the tokens of a text
 * @property {AbortSignal} [signal]
 */

const MAX_HEADING = 300; // characters of a heading that passages show
const STRETCH = 2000; // characters in which sentences are found at once; longer ones are cut
const SHORT = 16; // characters of a line that is one piece: finding the sentences of a million short lines takes seconds
const COUNTED = 4000; // characters whose tokens are counted at once: those of a large file would keep the engine busy
const GROUP = 1000; // characters of short blocks that are counted together: a message for each takes longer than its count

/** Splits plain text into paragraphs. @param {string} text @returns {Block[]} */
export function textBlocks(text) {
  return text
    .split(/\n[ \t]*\n/)
    .map((part) => ({ text: part.trim() }))
    .filter((block) => block.text);
}

/**
 * Splits Markdown into paragraphs with their headings; a code block stays whole.
 * @param {string} text @returns {Block[]}
 */
export function markdownBlocks(text) {
  /** @type {Block[]} */
  const blocks = [];
  /** @type {string[]} by level */
  const headings = [];
  /** @type {string[]} */
  let lines = [];
  let fence = "";
  const flush = () => {
    const block = lines.join("\n").trim();
    const heading = headings.filter(Boolean).join(" › ");
    if (block) blocks.push(heading ? { text: block, heading } : { text: block });
    lines = [];
  };
  const enter = (/** @type {number} */ level, /** @type {string} */ title) => {
    flush();
    headings.length = level - 1;
    headings[level - 1] = title
      .slice(0, MAX_HEADING)
      .replace(/[*_`]/g, "")
      .replace(/[ \t]#+$/, "")
      .trim();
  };
  for (const line of text.split("\n")) {
    const mark = /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1] ?? "";
    if (fence) {
      lines.push(line);
      if (mark.startsWith(fence)) fence = "";
      continue;
    }
    const title = /^ {0,3}(#{1,6})[ \t](.*)$/.exec(line);
    const underline = /^ {0,3}(=+|-+)[ \t]*$/.exec(line)?.[1];
    if (mark) lines.push(line);
    else if (title) enter(title[1].length, title[2]);
    else if (underline && lines.length === 1) {
      const [above] = lines;
      lines = [];
      enter(underline[0] === "=" ? 1 : 2, above);
    } else if (line.trim()) lines.push(line);
    else flush();
    fence = mark;
  }
  flush();
  return blocks;
}

/**
 * Splits the blocks of a document into passages.
 * @param {Block[]} blocks @param {Limits} limits @returns {Promise<Passage[]>}
 */
export async function split(blocks, { size, overlap, count, signal }) {
  /** @type {Passage[]} */
  const passages = [];
  /** @type {Unit[]} */
  let units = [];
  let fresh = 0; // units that are in no passage yet
  let length = 0;
  const flush = () => {
    if (!fresh) return;
    const first = units[units.length - fresh];
    const text = units.map((unit, i) => (i ? unit.before : "") + unit.text).join("");
    passages.push(passageOf(text, first));
    fresh = 0;
  };
  const pauses = new Pauses();
  for (const group of groups(blocks)) {
    const text = group.map((part) => part.text).join("\n");
    const density = (await withSignal(count(text), signal)) / text.length; // tokens a character; counting each sentence would be slow
    for (const part of group) {
      if (units.length && part.heading !== units[0].heading) {
        flush();
        [units, length] = [[], 0];
      }
      for (const unit of unitsOf(part, density, size)) {
        if (length + unit.tokens > size && fresh) {
          flush();
          [units, length] = tail(units, Math.min(overlap, size - unit.tokens));
        }
        units.push(unit);
        length += unit.tokens;
        fresh++;
      }
    }
    await pauses.due();
    signal?.throwIfAborted();
  }
  flush();
  return passages;
}

/** @param {string} text @param {Block} from @returns {Passage} */
function passageOf(text, { heading, page }) {
  return { text, ...(heading ? { heading } : {}), ...(page ? { page } : {}) };
}

/**
 * A sentence, or another piece of text that is not split further.
 * @typedef {Block & { tokens: number, before: string }} Unit `before`: the blanks between it and the unit before
 */

/**
 * The last units with at most so many tokens.
 * @param {Unit[]} units @param {number} tokens @returns {[Unit[], number]}
 */
function tail(units, tokens) {
  let from = units.length;
  let length = 0;
  while (from > 1 && length + units[from - 1].tokens <= tokens) length += units[--from].tokens;
  return [units.slice(from), length];
}

/**
 * A block, or a part of a long one.
 * @typedef {Block & { code: boolean, before: string }} Part `before`: the blanks between it and the part before
 */

/** Short blocks in groups, parts of long ones alone. @param {Block[]} blocks @returns {Generator<Part[]>} */
function* groups(blocks) {
  /** @type {Part[]} */
  let group = [];
  let length = 0;
  for (const block of blocks) {
    for (const part of partsOf(block)) {
      if (group.length && length + part.text.length > GROUP) {
        yield group;
        [group, length] = [[], 0];
      }
      group.push(part);
      length += part.text.length;
    }
  }
  if (group.length) yield group;
}

/** @param {Block} block @returns {Generator<Part>} */
function* partsOf({ text, ...rest }) {
  const code = /^ {0,3}(```|~~~)/.test(text);
  let before = "\n\n";
  for (const part of pieces(text, COUNTED, "\n")) {
    yield { ...rest, text: part, code, before };
    before = blanksAfter(part);
  }
}

/** @param {Part} part @param {number} density tokens a character @param {number} size @returns {Unit[]} */
function unitsOf({ text, code, before, ...rest }, density, size) {
  const most = Math.max(1, Math.floor(size / Math.max(density, 1e-6)));
  const whole = code && text.length <= most;
  const parts = whole ? [text] : (code ? lines(text) : sentences(text)).flatMap((s) => pieces(s, most));
  const units = parts.map((part, i) => ({
    ...rest,
    text: part.trimEnd(),
    tokens: Math.ceil(part.length * density),
    before: i ? blanksAfter(parts[i - 1]) : before,
  }));
  return units.filter((unit) => unit.text);
}

/** The blanks at the end of a text. @param {string} text */
const blanksAfter = (text) => text.slice(text.trimEnd().length);

/** @param {string} text */
const lines = (text) => text.split(/(?<=\n)/);

/** Splits a text into sentences, trailing blanks included. @param {string} text @returns {string[]} */
export function sentences(text) {
  if (!Intl.Segmenter) return text.split(/(?<=[.!?…]["'”’)]*\s+|\n)/);
  const segmenter = new Intl.Segmenter(undefined, { granularity: "sentence" });
  // V8 copies the whole text for each segment: those of a table of 100 KB took gigabytes. Sentences end with lines anyway.
  return lines(text).flatMap((line) => {
    if (line.length <= SHORT) return [line];
    const out = [];
    let rest = line;
    while (rest) {
      const stretch = rest.slice(0, cutOf(rest, STRETCH));
      const found = [...segmenter.segment(stretch)].map(({ segment }) => segment);
      const part = stretch.length < rest.length && found.length > 1 ? (found.pop() ?? "") : ""; // the rest may continue it
      out.push(...found);
      rest = rest.slice(stretch.length - part.length);
    }
    return out;
  });
}

/**
 * Where to cut a text of more than so many characters: after the last of these blanks, or after any, else after a whole
 * character.
 * @param {string} text @param {number} most @param {string} [blank]
 */
function cutOf(text, most, blank = " ") {
  if (text.length <= most) return text.length;
  const begin = text.slice(0, most + 1); // lastIndexOf() in a long text would go on to its beginning
  const after = begin.lastIndexOf(blank) + 1 || begin.lastIndexOf(" ") + 1;
  return after || most + Number(/[\ud800-\udbff]/.test(text[most - 1]));
}

/**
 * Splits a text into pieces of at most so many characters, between words where possible.
 * @param {string} text @param {number} most @param {string} [blank] where to cut if there is one
 */
function pieces(text, most, blank = " ") {
  const out = [];
  const end = text.trimEnd().length;
  let from = 0;
  while (end - from > most) {
    const cut = from + cutOf(text.slice(from, from + most + 2), most, blank);
    out.push(text.slice(from, cut));
    from = cut;
  }
  return end > from ? [...out, text.slice(from)] : out;
}
