/**
 * XGrammar for Python: which tokens a grammar allows next. Imported for the first constrained answer. The WebAssembly
 * module is inside the script. It is also the script of workers that try a grammar (grammar_trial.js).
 */
import "@mlc-ai/web-xgrammar";
import { Trials } from "./grammar_trial.js";
import { ExactText, StringLengths, allows } from "./string_limits.js";

const { Grammar, GrammarCompiler, GrammarMatcher, TokenizerInfo } =
  /** @type {typeof import("@mlc-ai/web-xgrammar")} */ (/** @type {any} */ (globalThis).xgrammar);

/** @typedef {import("@mlc-ai/web-xgrammar").CompiledGrammar} CompiledGrammar */
/** @typedef {import("@mlc-ai/web-xgrammar").GrammarMatcher} GrammarMatcher */

/**
 * Opens a compiler for a vocabulary.
 * @param {Uint8Array} bytes of all tokens, concatenated @param {Uint32Array} ends of each token in `bytes`
 * @param {number} size of the vocabulary with padding @param {number[]} stops ids that end an answer
 */
export async function open(bytes, ends, size, stops) {
  const tokens = /** @type {any[]} */ ([]); // as bytes: a token may be part of a character
  let start = 0;
  for (const end of ends) {
    tokens.push(bytes.subarray(start, end));
    start = end;
  }
  const info = await TokenizerInfo.createTokenizerInfo(tokens, "raw", false, size, stops);
  const compiler = await GrammarCompiler.createGrammarCompiler(info, false);
  return new Compiler(info, compiler, { bytes, ends, size, stops });
}

/** Whether a call for an answer has failed: the mask engine has aborted, and what its memory has may be wrong. */
let isDamaged = false;

/** @param {unknown} error @returns {never} */
function damaged(error) {
  isDamaged = true;
  throw error;
}

const neverInUtf8 = (/** @type {number} */ byte) => byte === 0xc0 || byte === 0xc1 || byte >= 0xf5;

/** A compiler for a vocabulary of bytes. The mask engine never allows an empty token. */
async function openBytes() {
  const tokens = Array.from({ length: 256 }, (_, byte) => (neverInUtf8(byte) ? new Uint8Array() : Uint8Array.of(byte)));
  const end = tokens.length;
  const info = await TokenizerInfo.createTokenizerInfo(/** @type {any} */ (tokens), "raw", false, end + 1, [end]);
  return { info, compiler: await GrammarCompiler.createGrammarCompiler(info, false) };
}

const MOST_CACHED = 4096; // forced texts whose tokens are cached
const MOST_LENGTH = 256; // of such a text: what is left of a longer one would be cached after each of its tokens, too

class Compiler {
  /** @type {Map<string, number[]>} the tokens of forced texts */
  #forcedIds = new Map();
  #info;
  #compiler;
  #stops;
  /** @type {Awaited<ReturnType<typeof openBytes>> | undefined} for exact grammars */
  #bytes;
  /** @type {StringLengths | undefined} */
  #lengths;

  /** @param {{ dispose(): void }} info @param {{ compileGrammar(grammar: any): Promise<CompiledGrammar>, dispose(): void }} compiler
   * @param {import("./grammar_trial.js").Vocabulary} vocabulary */
  constructor(info, compiler, vocabulary) {
    this.#info = info;
    this.#compiler = compiler;
    this.#stops = vocabulary.stops;
    this.vocabulary = vocabulary;
    this.trials = new Trials(import.meta.url, vocabulary);
  }

  /** Whether another instance has to be imported. */
  get damaged() {
    return isDamaged;
  }

  /** @param {string} text in XGrammar's EBNF @param {string} [exact] if `text` is looser: see string_limits.js */
  async compile(text, exact) {
    if (!exact) return new Compiled(await compiled(this.#compiler, text), this.#stops, this.#forcedIds);
    this.#bytes ??= await openBytes();
    const { bytes, ends, size } = this.vocabulary;
    const pieceOf = (/** @type {number} */ token) => bytes.subarray(token ? ends[token - 1] : 0, ends[token] ?? 0);
    this.#lengths ??= new StringLengths(size, pieceOf);
    const grammar = await compiled(this.#bytes.compiler, exact);
    try {
      const looser = await compiled(this.#compiler, text);
      return new Compiled(looser, this.#stops, this.#forcedIds, { grammar, lengths: this.#lengths });
    } catch (error) {
      grammar.dispose();
      throw error;
    }
  }

  close() {
    this.trials.drop();
    this.#bytes?.compiler.dispose();
    this.#bytes?.info.dispose();
    this.#compiler.dispose();
    this.#info.dispose();
  }
}

/** @param {{ compileGrammar(grammar: any): Promise<CompiledGrammar> }} compiler @param {string} text in XGrammar's EBNF */
async function compiled(compiler, text) {
  const grammar = await Grammar.fromEBNF(text);
  try {
    return await compiler.compileGrammar(grammar);
  } finally {
    grammar.dispose();
  }
}

/** @typedef {{ grammar: CompiledGrammar, lengths: StringLengths }} Exact */

class Compiled {
  #compiled;
  #stops;
  #forcedIds;
  #exact;

  /** @param {CompiledGrammar} compiled @param {number[]} stops @param {Map<string, number[]>} forcedIds @param {Exact} [exact] */
  constructor(compiled, stops, forcedIds, exact) {
    this.#compiled = compiled;
    this.#stops = stops;
    this.#forcedIds = forcedIds;
    this.#exact = exact;
  }

  async matcher() {
    const matcher = await GrammarMatcher.createGrammarMatcher(this.#compiled).catch(damaged);
    if (!this.#exact) return new Matcher(matcher, this.#stops, this.#forcedIds);
    const { grammar, lengths } = this.#exact;
    const own = await GrammarMatcher.createGrammarMatcher(grammar).catch(damaged);
    const exact = new ExactText(own, matcher, lengths);
    return new Matcher(matcher, this.#stops, this.#forcedIds, exact);
  }

  close() {
    this.#compiled.dispose();
    this.#exact?.grammar.dispose();
  }
}

// Where a grammar can read a text in many ways, each token may take longer than the one before, and nothing interrupts
// the mask engine. An answer may use this much on average, and that much more in all. A computer that sleeps during a
// call must not end the answer: the clock of some systems runs on, so no call counts as more than MOST_MS.
const USUAL_MS = 100; // for each token
const MORE_MS = 2000;
const MOST_MS = 1000;

/** The state of one answer. */
class Matcher {
  #matcher;
  #stops;
  #forcedIds;
  #exact;
  #owed = 0; // ms beyond what was usual
  /** @type {Int32Array | null} mask of the current state */
  #mask = null;

  /**
   * @param {GrammarMatcher} matcher @param {number[]} stops @param {Map<string, number[]>} forcedIds
   * @param {ExactText} [exact] if the matcher's grammar is looser
   */
  constructor(matcher, stops, forcedIds, exact) {
    this.#matcher = matcher;
    this.#stops = stops;
    this.#forcedIds = forcedIds;
    this.#exact = exact;
  }

  /** Whether the answer's tokens take too long. */
  get slow() {
    return this.#owed > MORE_MS;
  }

  /** @template T @param {() => T} call of the mask engine @returns {T} what it returns */
  #timed(call) {
    const began = performance.now();
    try {
      return call();
    } catch (error) {
      return damaged(error);
    } finally {
      this.#owe(performance.now() - began);
    }
  }

  /** @param {number} ms that a call took */
  #owe(ms) {
    this.#owed += Math.min(ms, MOST_MS);
  }

  /** Allow what a token usually takes. */
  #allow() {
    if (!this.slow) this.#owed = Math.max(0, this.#owed - USUAL_MS);
  }

  /** A bit set for each token that may come next. */
  async mask() {
    if (!this.#mask) {
      const began = performance.now();
      const mask = await this.#matcher.getNextTokenBitmask().catch(damaged);
      this.#mask = this.#exact && !this.#matcher.isTerminated() ? this.#exact.narrowed(mask) : mask;
      this.#owe(performance.now() - began);
    }
    return this.#mask;
  }

  /** As accept(), of a token that was sampled without the mask. @param {number} token @returns {boolean} */
  tryAccept(token) {
    return !this.#exact?.isBanned(token) && this.accept(token);
  }

  /** @param {number} token @returns {boolean} whether it may come next; if so, the answer advances past it */
  accept(token) {
    const ended = this.#matcher.isTerminated();
    const accepted = ended ? this.#stops.includes(token) : this.#timed(() => this.#acceptToken(token));
    if (accepted) this.#mask = null;
    this.#allow();
    return accepted;
  }

  /** @param {number} token @returns {boolean} */
  #acceptToken(token) {
    const exact = this.#stops.includes(token) ? undefined : this.#exact; // which has no stops, and ends where the other one does
    if (exact && !exact.accept(token)) return false;
    if (this.#matcher.acceptToken(token)) return true;
    exact?.undo();
    return false;
  }

  /**
   * Advances past a text, in parts: the time is checked after each. The whole text has MORE_MS.
   * @param {string} text @returns {boolean} whether the answer may continue with it
   */
  acceptText(text) {
    this.#mask = null;
    for (const piece of text.match(/[^]{1,64}/gu) ?? []) {
      if (this.#exact && !this.#timed(() => this.#exact?.acceptBytes(utf8.encode(piece)))) return false;
      if (this.slow || !this.#timed(() => this.#matcher._acceptString(piece))) return false;
    }
    return true;
  }

  /** The text that must come next. */
  forced() {
    return this.#matcher.isTerminated() ? "" : this.#timed(() => this.#matcher.findJumpForwardString());
  }

  /**
   * Caches the tokens of a forced text, which may come again: grammar.py has them from the tokenizer.
   * @param {string} text @param {Iterable<number>} ids
   */
  cacheForced(text, ids) {
    if (text.length > MOST_LENGTH) return;
    if (this.#forcedIds.size >= MOST_CACHED) this.#forcedIds.clear();
    this.#forcedIds.set(text, [...ids]);
  }

  /** The forced tokens, if they are known: see py_engine/gpu/masked.js. */
  forcedIds() {
    return this.slow || this.#matcher.isTerminated() ? undefined : this.#forcedIds.get(this.forced());
  }

  /** Whether the next token can be sampled at once: see py_engine/gpu/masked.js. */
  canSample() {
    return !this.slow && !this.#matcher.isTerminated() && this.forced().length < 2;
  }

  /** Whether the answer may end here. */
  async mayEnd() {
    if (this.#matcher.isTerminated()) return true;
    const mask = await this.mask();
    return this.#stops.some((token) => allows(mask, token));
  }

  /** Whether the answer has ended, or only the end may follow. The latter is known only after mask(). */
  finished() {
    if (this.#matcher.isTerminated()) return true;
    const mask = this.#mask;
    if (!mask) return false;
    const ends = new Map();
    for (const token of this.#stops) ends.set(token >> 5, (ends.get(token >> 5) ?? 0) | (1 << (token & 31)));
    return mask.every((word, i) => (word & ~(ends.get(i) ?? 0)) === 0);
  }

  close() {
    this.#matcher.dispose();
    this.#exact?.close();
  }
}

const utf8 = new TextEncoder();
const TOKENS = 20; // of a text that a trial writes
const SEED = 12345; // so that a grammar is always tried with the same texts

/**
 * Compiles a grammar and writes a text of it.
 * @param {Compiler} compiler @param {import("./grammar_trial.js").Vocabulary} vocabulary @param {string} text
 */
async function tryGrammar(compiler, { size, stops }, text) {
  const matcher = await (await compiler.compile(text)).matcher();
  let random = SEED;
  for (let written = 0; written < TOKENS; written++) {
    const mask = await matcher.mask();
    const allowed = [...Array(size).keys()].filter((i) => allows(mask, i) && !stops.includes(i));
    if (!allowed.length) return;
    random = (Math.imul(random, 1664525) + 1013904223) >>> 0;
    matcher.accept(allowed[Math.floor((random / 2 ** 32) * allowed.length)]);
    matcher.forced();
  }
}

const SAMPLE_MS = 20; // of computing, which takes longer where other work has the processors
const MOST_SAMPLE_MS = 200;
const GAP_MS = 2; // a step of the clock as long as this: the thread was not running. Some clocks have steps of 1 ms
const MANY_LOOKS = 10_000; // at a clock that has no shorter step: it is too coarse

/** The share of a processor that this thread gets, up to 1; 1 where the clock is too coarse to tell. */
function processorShare() {
  const began = performance.now();
  let last = began;
  let computed = 0;
  let looks = 0;
  while (computed < SAMPLE_MS && last - began < MOST_SAMPLE_MS) {
    const now = performance.now();
    looks++;
    if (now - last < GAP_MS) computed += now - last;
    last = now;
  }
  return computed || looks < MANY_LOOKS ? computed / (last - began) : 1;
}

/** Opens the vocabulary of the first message, and tries the grammar of the second one. @param {MessagePort} port */
function serve(port) {
  const received = () => new Promise((resolve) => (port.onmessage = ({ data }) => resolve(data)));
  const run = async () => {
    const vocabulary = await received();
    const compiler = await open(vocabulary.bytes, vocabulary.ends, vocabulary.size, vocabulary.stops);
    const text = received();
    port.postMessage({ share: processorShare() });
    await tryGrammar(compiler, vocabulary, await text);
  };
  run().then(
    () => port.postMessage({ error: null }),
    (error) => port.postMessage({ error: String(error) }),
  );
}

if (globalThis.location?.href === import.meta.url) self.onmessage = ({ data: { port } }) => serve(port);
