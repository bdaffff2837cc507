/**
 * Splits documents into passages that are short enough to embed and to quote. A passage never crosses a heading. Long
 * sections are cut between sentences; each passage repeats the last sentences of the previous one, for context.
 */

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
 */

const MAX_HEADING = 300; // characters of a heading that passages show
const STRETCH = 2000; // characters in which sentences are found at once; longer ones are cut

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
export async function split(blocks, { size, overlap, count }) {
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
  for (const block of blocks) {
    if (units.length && block.heading !== units[0].heading) {
      flush();
      [units, length] = [[], 0];
    }
    for (const unit of unitsOf(block, await count(block.text), size)) {
      if (length + unit.tokens > size && fresh) {
        flush();
        [units, length] = tail(units, Math.min(overlap, size - unit.tokens));
      }
      units.push(unit);
      length += unit.tokens;
      fresh++;
    }
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

/** @param {Block} block @param {number} tokens of it @param {number} size @returns {Unit[]} */
function unitsOf({ text, ...rest }, tokens, size) {
  const density = tokens / Math.max(1, text.length); // tokens a character; counting each sentence would be slow
  const most = Math.max(1, Math.floor(size / Math.max(density, 1e-6)));
  const code = /^ {0,3}(```|~~~)/.test(text);
  const parts =
    code && tokens <= size ? [text] : (code ? lines(text) : sentences(text)).flatMap((s) => pieces(s, most));
  return parts.map((part, i) => ({
    ...rest,
    text: part.trimEnd(),
    tokens: Math.ceil(part.length * density),
    before: i ? (/\s+$/.exec(parts[i - 1])?.[0] ?? "") : "\n\n",
  }));
}

/** @param {string} text */
const lines = (text) => text.split(/(?<=\n)/);

/** Splits a text into sentences, trailing blanks included. @param {string} text @returns {string[]} */
export function sentences(text) {
  if (!Intl.Segmenter) return text.split(/(?<=[.!?…]["'”’)]*\s+|\n)/);
  const segmenter = new Intl.Segmenter(undefined, { granularity: "sentence" });
  // V8 copies the whole text for each segment: those of a table of 100 KB took gigabytes. Sentences end with lines anyway.
  return lines(text).flatMap((line) => {
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
 * Where to cut a text of more than so many characters: after a blank, if any, else after a whole character.
 * @param {string} text @param {number} most
 */
function cutOf(text, most) {
  if (text.length <= most) return text.length;
  return text.lastIndexOf(" ", most) + 1 || most + Number(/[\ud800-\udbff]/.test(text[most - 1]));
}

/**
 * Splits a text into pieces of at most so many characters, between words where possible.
 * @param {string} text @param {number} most
 */
function pieces(text, most) {
  const out = [];
  while (text.trimEnd().length > most) {
    const cut = cutOf(text, most);
    out.push(text.slice(0, cut));
    text = text.slice(cut);
  }
  return text.trim() ? [...out, text] : out;
}
