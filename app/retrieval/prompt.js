/** The prompt of a question with its sources, and the sources that an answer cites. */
import { subjects, words } from "./search.js";
import { sentences } from "./split.js";

/**
 * @typedef {object} Source a passage as the model gets it; sources are numbered from 1
 * @property {string} document the file's name
 * @property {string} text
 * @property {string} [heading]
 * @property {number} [page]
 */

const TASK =
  "Answer the question using only the context. If the answer is not there, say that the context does not say. " +
  "Cite the source number.";
const LEAST = 40; // tokens of the shortest excerpt of a passage that is useful
const ALIKE = 0.7; // fraction of a sentence's words that a passage must contain to support it

/** @param {string} question @param {Source[]} sources @returns {string} the user message */
export function promptOf(question, sources) {
  return partsOf(question, sources)
    .map(({ text }) => text)
    .join("\n");
}

/**
 * The user message in parts, which the engine joins with line breaks. Special tokens in the passages are text to it.
 * @param {string} question @param {Source[]} sources @returns {{ type: "text", text: string, untrusted?: boolean }[]}
 */
export function partsOf(question, sources) {
  const context = sources.map((source, i) => `[${i + 1}] (${source.document}) ${source.text}`).join("\n");
  return [
    { type: "text", text: `${TASK}\n\nContext:` },
    { type: "text", text: context, untrusted: true },
    { type: "text", text: `\nQuestion: ${question}` },
  ];
}

/**
 * The first sources that fit. The last one may be shortened after a sentence.
 * @param {Source[]} sources @param {number} budget tokens for all of them
 * @param {(text: string) => Promise<number>} count tokens of a text
 * @returns {Promise<Source[]>}
 */
export async function fitting(sources, budget, count) {
  const out = [];
  for (const source of sources) {
    const tokens = await count(promptLine(source));
    if (tokens <= budget) {
      out.push(source);
      budget -= tokens;
      continue;
    }
    const cut = await shortened(source, budget, count);
    if (cut) out.push(cut);
    break;
  }
  return out;
}

/** @param {Source} source */
const promptLine = ({ document, text }) => `[0] (${document}) ${text}\n`;

/**
 * @param {Source} source
 * @param {number} budget tokens @param {(text: string) => Promise<number>} count @returns {Promise<Source | null>}
 */
async function shortened(source, budget, count) {
  if (budget < LEAST) return null;
  let text = "";
  for (const sentence of sentences(source.text)) {
    if ((await count(promptLine({ ...source, text: text + sentence }))) > budget) break;
    text += sentence;
  }
  return text ? { ...source, text: `${text.trimEnd()} …` } : null;
}

/** A citation: [2], or [1, 3]. */
export const CITATION = /\[(\d{1,2}(?:\s*[,;]\s*\d{1,2})*)\]/g;

/**
 * The numbers of the sources that an answer cites.
 * @param {string} answer @param {number} count of sources @returns {number[]}
 */
export function cited(answer, count) {
  const prose = answer.replace(/```[\s\S]*?(```|$)|`[^`\n]*`/g, "");
  const numbers = [...prose.matchAll(CITATION)].flatMap((match) => match[1].split(/[,;]/).map(Number));
  return [...new Set(numbers)].filter((n) => n >= 1 && n <= count);
}

/**
 * The sources that contain most words of a sentence of the answer, for answers without citations.
 * @param {string} answer @param {Source[]} sources @returns {number[]}
 */
export function matching(answer, sources) {
  const texts = sources.map(({ text }) => new Set(words(text)));
  const found = new Set();
  for (const sentence of sentences(answer)) {
    const terms = subjects(sentence);
    if (terms.length < 2) continue;
    const overlaps = texts.map((text) => terms.filter((word) => text.has(word)).length / terms.length);
    const best = Math.max(...overlaps);
    if (best >= ALIKE) found.add(overlaps.indexOf(best) + 1);
  }
  return [...found].sort((a, b) => a - b);
}
