/** The passages that may answer a question: by their words, and where there are vectors by their meaning too. */

/**
 * @typedef {object} Found
 * @property {number} index of the passage
 * @property {number} score only to compare with others of the same search
 */

const K1 = 1.2; // how soon a word that comes again counts no more
const B = 0.75; // how much a long passage is held against it
// How little the first ranks stand out. Less than the usual 60, which is for long rankings of large collections: of 28
// questions to 103 passages, words had the answer first for 46 %, meaning for 36 %, both for 50 % with 60, 54 % with 5.
const RRF = 5;
const LEAST_COSINE = 0.15; // below it, a passage that shares no word with the question has nothing to do with it

// What questions are made of, and says nothing of what they are about; in other languages, rarity alone tells.
const EMPTY = new Set(
  (
    "a about an and any are as at be been by can could did do does for from had has have he her his how i in is it its " +
    "me my of on or our she so that the their them there these they this those to was we were what when where which " +
    "who whom whose why will with would you your"
  ).split(" "),
);

/**
 * The words of a text as they are compared: folded, without plural endings; of scripts without blanks, pairs of
 * characters. @param {string} text @returns {string[]}
 */
export function words(text) {
  const folded = text.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase();
  return (folded.match(/[\p{L}\p{N}]+/gu) ?? []).flatMap((word) => (CJK.test(word) ? pairs(word) : [singular(word)]));
}

/** The words of a text that say what it is about, each once. @param {string} text @returns {string[]} */
export function subjects(text) {
  return [...new Set(words(text))].filter((word) => !EMPTY.has(word));
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
  /** @type {Map<string, Map<number, number>>} word -> passage -> how often */
  #postings = new Map();
  /** @type {number[]} */
  #lengths = [];
  #mean = 0;

  /** @param {string[]} texts */
  constructor(texts) {
    texts.forEach((text, i) => {
      const all = words(text);
      this.#lengths.push(all.length);
      for (const word of all) {
        const posting = this.#postings.get(word) ?? new Map();
        posting.set(i, (posting.get(i) ?? 0) + 1);
        this.#postings.set(word, posting);
      }
    });
    this.#mean = this.#lengths.reduce((sum, length) => sum + length, 0) / Math.max(1, texts.length);
  }

  /** The passages that share a word with the query, the best first. @param {string} query @returns {Found[]} */
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
 * Passages by the cosine between their vectors, all of length 1, and the query's.
 * @param {Float32Array} query @param {(Float32Array | undefined)[]} vectors one without is left out @returns {Found[]}
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
 * Several rankings as one. Source: Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion", 2009.
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
 * @param {{ query: Float32Array, vectors: (Float32Array | undefined)[] } | null} meaning null: by words alone
 * @param {number} most @returns {Found[]}
 */
export function search(lexical, query, meaning, most) {
  const byWords = lexical.rank(query);
  if (!meaning) return byWords.slice(0, most);
  const shares = new Set(byWords.map(({ index }) => index));
  const near = byMeaning(meaning.query, meaning.vectors).filter(
    ({ index, score }) => score >= LEAST_COSINE || shares.has(index),
  );
  return fuse([near, byWords]).slice(0, most);
}

/** @param {Found[]} found */
function sorted(found) {
  return found.sort((a, b) => b.score - a.score || a.index - b.index);
}
