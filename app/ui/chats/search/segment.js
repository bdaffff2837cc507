/**
 * An inverted index of chats, in segments. A segment lists the chats that were indexed at once, their words in order, and
 * for each word the chats that have it. A chat that changed is in a newer segment, too: the newest one counts. A deleted
 * chat has no words there.
 */
import { plainWords } from "../../../retrieval/search.js";

/**
 * @typedef {object} Segment
 * @property {number} [segment] its number in the database; newer ones are larger
 * @property {string[]} chats ids
 * @property {string} words in order, one a line
 * @property {Uint32Array} starts where each word's postings start
 * @property {Uint16Array | Uint32Array} postings indices into `chats`
 */

const LONGEST = 40; // characters of a word; longer ones, such as encoded files, are cut

/** @param {string} text @returns {string[]} */
export function terms(text) {
  return [...new Set(plainWords(text))].map((word) => word.slice(0, LONGEST));
}

/** A word as it may be sought: "strasse" finds "Straße". @param {string} word @returns {string[]} */
const spellings = (word) => (word.includes("ß") ? [word, word.replaceAll("ß", "ss")] : [word]);

/** @param {{ id: string, text: string }[]} chats @returns {Segment} */
export function segmentOf(chats) {
  /** @type {Map<string, number[]>} */
  const found = new Map();
  chats.forEach(({ text }, index) => {
    for (const word of new Set(terms(text).flatMap(spellings))) {
      const postings = found.get(word);
      if (postings) postings.push(index);
      else found.set(word, [index]);
    }
  });
  return packed(
    chats.map(({ id }) => id),
    found,
  );
}

/**
 * One segment of several. Entries of chats that a newer segment has are dropped.
 * @param {Opened[]} segments @param {(id: string, segment: Opened) => boolean} counts whether the chat is current there
 * @returns {Segment}
 */
export function merged(segments, counts) {
  /** @type {string[]} */
  const ids = [];
  /** @type {Map<string, number[]>} */
  const found = new Map();
  for (const opened of segments) {
    const { chats, postings } = opened.segment;
    const numbers = chats.map((id) => (counts(id, opened) ? ids.push(id) - 1 : -1));
    opened.words.forEach((word, index) => {
      const [start, end] = opened.range(index);
      for (let at = start; at < end; at++) {
        const number = numbers[postings[at]];
        if (number < 0) continue;
        const list = found.get(word);
        if (list) list.push(number);
        else found.set(word, [number]);
      }
    });
  }
  return packed(ids, found);
}

/** @param {string[]} chats @param {Map<string, number[]>} found @returns {Segment} */
function packed(chats, found) {
  const words = [...found.keys()].sort();
  const starts = new Uint32Array(words.length);
  const Postings = chats.length > 1 << 16 ? Uint32Array : Uint16Array; // half as much is read before the first search
  const postings = new Postings([...found.values()].reduce((sum, list) => sum + list.length, 0));
  let at = 0;
  words.forEach((word, index) => {
    const list = /** @type {number[]} */ (found.get(word));
    starts[index] = at;
    postings.set(list, at);
    at += list.length;
  });
  return { chats, words: words.join("\n"), starts, postings };
}

/** A segment that is searched. */
export class Opened {
  /** @param {Segment} segment */
  constructor(segment) {
    this.segment = segment;
    this.words = segment.words ? segment.words.split("\n") : [];
  }

  /** Where a word's postings are. @param {number} index @returns {[number, number]} */
  range(index) {
    const { starts, postings } = this.segment;
    return [starts[index], starts[index + 1] ?? postings.length];
  }

  /** The chats with words that begin with each of the terms. @param {string[]} prefixes @returns {string[]} */
  search(prefixes) {
    const { chats, postings } = this.segment;
    const hits = new Uint8Array(chats.length); // how many of the terms a chat has
    prefixes.forEach((prefix, number) => {
      for (let index = this.#first(prefix); this.words[index]?.startsWith(prefix); index++) {
        const [start, end] = this.range(index);
        for (let at = start; at < end; at++) if (hits[postings[at]] === number) hits[postings[at]] = number + 1;
      }
    });
    return chats.filter((_, index) => hits[index] === prefixes.length);
  }

  /** The first word that does not come before a text. @param {string} text */
  #first(text) {
    let low = 0;
    let high = this.words.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.words[middle] < text) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
