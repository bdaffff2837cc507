/** Ranks passages for a question: by words (BM25) and, where there are vectors, by meaning (cosine), fused. */
import { Pauses } from "./pauses.js";

/**
 * @typedef {object} Found
 * @property {number} index of the passage
 * @property {number} score comparable only within one search
 */

const K1 = 1.2; // BM25: saturation of term frequency
const B = 0.75; // BM25: length normalisation
// The constant k of reciprocal rank fusion. The usual 60 is for long rankings of large collections.
// Answer ranked first, 28 questions to 103 passages: words 46 %, meaning 36 %, both 50 % (k = 60) or 54 % (k = 5).
const RRF = 5;
const LEAST_COSINE = 0.15; // below it, a passage without a word of the question is irrelevant

// English only; in other languages, the rarity of words has to suffice.
const STOP_WORDS = new Set(
  (
    "a about an and any are as at be been by can could did do does for from had has have he her his how i in is it its " +
    "me my of on or our she so that the their them there these they this those to was we were what when where which " +
    "who whom whose why will with would you your"
  ).split(" "),
);

/**
 * The terms of a text: lower case, without accents and plural endings. Scripts without spaces give character pairs.
 * @param {string} text @returns {string[]}
 */
export function words(text) {
  return plainWords(text).map((word) => (CJK.test(word) ? word : singular(word)));
}

/** The words of a text as they are, in lower case and without accents. @param {string} text @returns {string[]} */
export function plainWords(text) {
  const folded = text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  return (folded.match(/[\p{L}\p{N}]+/gu) ?? []).flatMap((word) => (CJK.test(word) ? pairs(word) : [word]));
}

/** The distinct terms of a text, stop words excluded. @param {string} text @returns {string[]} */
export function subjects(text) {
  return [...new Set(words(text))].filter((word) => !STOP_WORDS.has(word));
}

const CJK = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u;

/** @param {string} word @returns {string[]} */
function pairs(word) {
  const characters = [...word];
  if (characters.length === 1) return characters;
  return characters.slice(1).map((character, i) => characters[i] + character);
}

/** @param {string} word */
function singular(word) {
  if (word.length < 4 || !word.endsWith("s") || /(ss|us|is)$/.test(word)) return word;
  return word.endsWith("ies") ? `${word.slice(0, -3)}y` : word.slice(0, -1);
}

/** Okapi BM25 over passages. Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework", 2009. */
export class Lexical {
  /** @type {Map<string, Map<number, number>>} term -> passage -> count */
  #postings = new Map();
  /** @type {number[]} */
  #lengths = [];
  #mean = 0;

  /** @param {string[]} texts @returns {Promise<Lexical>} */
  static async of(texts) {
    const index = new Lexical();
    const pauses = new Pauses();
    for (const text of texts) {
      index.#add(words(text));
      await pauses.due();
    }
    index.#mean = index.#lengths.reduce((sum, length) => sum + length, 0) / Math.max(1, texts.length);
    return index;
  }

  /** @param {string[]} all the next passage's */
  #add(all) {
    const i = this.#lengths.push(all.length) - 1;
    for (const word of all) {
      const posting = this.#postings.get(word) ?? new Map();
      posting.set(i, (posting.get(i) ?? 0) + 1);
      this.#postings.set(word, posting);
    }
  }

  /** Ranks the passages that share a term with the query. @param {string} query @returns {Found[]} */
  rank(query) {
    const n = this.#lengths.length;
    /** @type {Map<number, number>} */
    const scores = new Map();
    for (const word of subjects(query)) {
      const posting = this.#postings.get(word);
      if (!posting) continue;
      const rarity = Math.log(1 + (n - posting.size + 0.5) / (posting.size + 0.5));
      for (const [i, count] of posting) {
        const norm = K1 * (1 - B + (B * this.#lengths[i]) / this.#mean);
        scores.set(i, (scores.get(i) ?? 0) + (rarity * count * (K1 + 1)) / (count + norm));
      }
    }
    return sorted([...scores].map(([index, score]) => ({ index, score })));
  }
}

/**
 * Ranks passages by the cosine between their vectors and the query's; all have length 1.
 * @param {Float32Array} query @param {(Float32Array | undefined)[]} vectors passages without a vector are left out
 * @returns {Found[]}
 */
export function byMeaning(query, vectors) {
  /** @type {Found[]} */
  const found = [];
  vectors.forEach((vector, index) => {
    if (vector?.length !== query.length) return;
    let score = 0;
    for (let i = 0; i < query.length; i++) score += query[i] * vector[i];
    found.push({ index, score });
  });
  return sorted(found);
}

/**
 * Fuses rankings. Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion", 2009.
 * @param {Found[][]} rankings @returns {Found[]}
 */
export function fuse(rankings) {
  /** @type {Map<number, number>} */
  const scores = new Map();
  for (const ranking of rankings) {
    ranking.forEach(({ index }, rank) => scores.set(index, (scores.get(index) ?? 0) + 1 / (RRF + rank + 1)));
  }
  return sorted([...scores].map(([index, score]) => ({ index, score })));
}

/**
 * The best passages for a question.
 * @param {Lexical} lexical @param {string} query
 * @param {{ query: Float32Array, vectors: (Float32Array | undefined)[] } | null} meaning null: rank by words alone
 * @param {number} most @returns {Found[]}
 */
export function search(lexical, query, meaning, most) {
  const byWords = lexical.rank(query);
  if (!meaning) return byWords.slice(0, most);
  const withWords = new Set(byWords.map(({ index }) => index));
  const near = byMeaning(meaning.query, meaning.vectors).filter(
    ({ index, score }) => score >= LEAST_COSINE || withWords.has(index),
  );
  return fuse([near, byWords]).slice(0, most);
}

/** @param {Found[]} found */
function sorted(found) {
  return found.sort((a, b) => b.score - a.score || a.index - b.index);
}
