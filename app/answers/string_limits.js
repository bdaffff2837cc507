/**
 * Strings of limited length, counted beside the mask engine.
 *
 * With a state for each character that may still come, a grammar takes the mask engine seconds to compile for a large
 * vocabulary. So a form with long limits has two grammars: a looser one, without these limits, makes the masks; the exact
 * one is compiled for bytes, which takes milliseconds, and checks each token. A mask near the end of a string is narrowed to
 * the tokens that fit: a token's characters are counted once for a vocabulary.
 */
const MOST_COUNTED = 32; // characters of a token before a quote: longer tokens are never sampled in a form with limits
const MOST_BEGUN = 16; // characters after a quote: each fits the next string, since limits up to this are in both grammars (strings.py)
const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const LETTER = 0x78; // any that needs no escape
const LETTERS = "x".repeat(MOST_COUNTED);
const LETTER_AND_BREAK = [LETTER, 0x0a]; // in this order only free text has them: no JSON does, nor the syntax of a call
const HIGH_SURROGATE = /^\\u[dD][89abAB]/;
const HIGH = 6; // length of an escape, after which the one of a low surrogate follows

/** @typedef {import("@mlc-ai/web-xgrammar").GrammarMatcher} GrammarMatcher */
/** @typedef {(token: number) => Uint8Array} PieceOf */

/** Whether a mask allows a token. @param {Int32Array} mask @param {number} token */
export function allows(mask, token) {
  return ((mask[token >> 5] >>> (token & 31)) & 1) === 1;
}

/** Length of the character that begins at `at` of a token, or of the part of it that the token has. @param {Uint8Array} piece @param {number} at */
function lengthAt(piece, at) {
  if (piece[at] !== BACKSLASH) return 1;
  if (piece[at + 1] !== 0x75) return 2;
  return HIGH_SURROGATE.test(String.fromCharCode(...piece.subarray(at, at + 4))) ? 2 * HIGH : HIGH;
}

/** Characters of a token before its first quote, and after each quote. @param {Uint8Array} piece */
function lengthsOf(piece) {
  const counts = [0];
  for (let at = 0; at < piece.length; at += lengthAt(piece, at)) {
    if (piece[at] === QUOTE) counts.push(0);
    else if ((piece[at] & 0xc0) !== 0x80) counts[counts.length - 1]++; // not within a character
  }
  return counts;
}

/** How the tokens of a vocabulary go on with a string. */
export class StringLengths {
  #counts;
  /** @type {Int32Array[]} by the most characters */
  #masks = [];

  /** @param {number} size of the vocabulary @param {PieceOf} pieceOf */
  constructor(size, pieceOf) {
    this.size = size;
    this.pieceOf = pieceOf;
    this.#counts = new Uint8Array(size); // characters before the quote that ends the string
    this.banned = new Int32Array((size + 31) >> 5); // tokens that are never sampled
    for (let token = 0; token < size; token++) {
      const [first, ...others] = lengthsOf(pieceOf(token));
      this.#counts[token] = Math.min(first, 255);
      if (first > MOST_COUNTED || Math.max(0, ...others) > MOST_BEGUN) this.banned[token >> 5] |= 1 << (token & 31);
    }
  }

  /** A bit for each token that has at most so many characters of the string. @param {number} most */
  mask(most) {
    return (this.#masks[most] ??= this.#counts.reduce((mask, count, token) => {
      if (count <= most) mask[token >> 5] |= 1 << (token & 31);
      return mask;
    }, new Int32Array(this.banned.length)));
  }
}

/** What has begun of a character: the rest of an escape, or of its UTF-8, must follow. */
class PartialCharacter {
  #escape = "";
  #more = 0; // bytes of UTF-8
  #first = 0; // its first byte

  /** @param {PartialCharacter} [other] to copy */
  constructor(other) {
    if (other) [this.#escape, this.#more, this.#first] = [other.#escape, other.#more, other.#first];
  }

  /** @param {number} byte that follows */
  add(byte) {
    if (byte >= 0x80) {
      this.#more = byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : byte >= 0xc0 ? 1 : this.#more - 1;
      this.#first = byte >= 0xc0 ? byte : 0;
      return;
    }
    this.#more = 0;
    if (!this.#escape && byte !== BACKSLASH) return;
    const escape = this.#escape + String.fromCharCode(byte);
    const size = escape[1] !== "u" ? 2 : HIGH_SURROGATE.test(escape) ? 2 * HIGH : HIGH;
    this.#escape = escape.length < size ? escape : "";
  }

  /** Bytes that end the character; none where none has begun. */
  get rest() {
    if (this.#more) {
      const next = { 0xe0: 0xa0, 0xf0: 0x90 }[this.#first] ?? 0x80;
      return [next, 0x80, 0x80].slice(0, this.#more);
    }
    const escape = this.#escape;
    if (!escape) return [];
    let whole = escape === "\\" ? "\\n" : escape.padEnd(HIGH, "0");
    if (HIGH_SURROGATE.test(whole)) whole += "\\udc00".slice(whole.length - HIGH);
    return [...whole.slice(escape.length)].map((char) => char.charCodeAt(0));
  }
}

/** The exact grammar's state of one answer. */
export class ExactText {
  #exact;
  #looser;
  #lengths;
  #begun = new PartialCharacter();
  /** @type {{ begun: PartialCharacter, bytes: number }} what undo() needs */
  #before = { begun: this.#begun, bytes: 0 };

  /** @param {GrammarMatcher} exact its tokens are bytes @param {GrammarMatcher} looser @param {StringLengths} lengths */
  constructor(exact, looser, lengths) {
    this.#exact = exact;
    this.#looser = looser;
    this.#lengths = lengths;
  }

  /** Whether a token is banned at this point; in free text none is. @param {number} token */
  isBanned(token) {
    return allows(this.#lengths.banned, token) && !this.#isFree();
  }

  /** @param {number} token @returns {boolean} whether it may come next; if so, the text advances past it */
  accept(token) {
    return this.acceptBytes(this.#lengths.pieceOf(token));
  }

  /** @param {Iterable<number>} bytes @returns {boolean} as accept() */
  acceptBytes(bytes) {
    const begun = new PartialCharacter(this.#begun);
    let count = 0;
    for (const byte of bytes) {
      if (!this.#exact.acceptToken(byte)) {
        if (count) this.#exact.rollBack(count);
        return false;
      }
      begun.add(byte);
      count++;
    }
    this.#before = { begun: this.#begun, bytes: count };
    this.#begun = begun;
    return true;
  }

  /** Takes the last accept() back. */
  undo() {
    if (this.#before.bytes) this.#exact.rollBack(this.#before.bytes);
    this.#begun = this.#before.begun;
  }

  /** Those tokens of a looser mask that the exact grammar allows. @param {Int32Array} mask @returns {Int32Array} */
  narrowed(mask) {
    const { rest } = this.#begun;
    const letters = [...rest, ...Array(MOST_COUNTED).fill(LETTER)];
    const remaining = Math.max(0, this.#following(letters) - rest.length);
    if (remaining === MOST_COUNTED && this.#isFree()) return mask;
    const { banned } = this.#lengths;
    const found = mask.map((word, i) => word & ~banned[i]);
    if (remaining === MOST_COUNTED) return found;
    if (rest.length) return this.#checked(found);
    if (!this.#looser._acceptString(LETTERS.slice(0, remaining + 1))) return found; // no limit ends it
    this.#looser.rollBack(1);
    const fitting = this.#lengths.mask(remaining);
    return found.map((word, i) => word & fitting[i]);
  }

  /** Whether this is free text: before a call, or in a thought. */
  #isFree() {
    const bytes = [...this.#begun.rest, ...LETTER_AND_BREAK];
    return this.#following(bytes) === bytes.length;
  }

  /** How many of these bytes may follow. @param {number[]} bytes */
  #following(bytes) {
    let count = 0;
    while (count < bytes.length && this.#exact.acceptToken(bytes[count])) count++;
    if (count) this.#exact.rollBack(count);
    return count;
  }

  /** The mask without tokens that the exact grammar rejects one by one. @param {Int32Array} mask */
  #checked(mask) {
    for (let token = 0; token < this.#lengths.size; token++) {
      if (!allows(mask, token)) continue;
      if (this.accept(token)) this.undo();
      else mask[token >> 5] &= ~(1 << (token & 31));
    }
    return mask;
  }

  close() {
    this.#exact.dispose();
  }
}
