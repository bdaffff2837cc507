/**
 * Samples tokens of some sequences step by step, each with the mask that its constraint has after the one before. The next
 * masks are made while the GPU computes the logits. Python runs between two steps only where a constraint forces a text
 * whose tokens are not known yet.
 *
 * @typedef {object} MaskSource  a constraint, such as a grammar
 * @property {() => Promise<Int32Array>} mask a bit for each token that may come next
 * @property {(token: number) => boolean} accept advances past a token
 * @property {() => boolean} canSample whether the next token can be sampled at once: no text is forced, and it has not ended
 * @property {() => number[] | undefined} [forcedIds] the ids that come next where it cannot sample, if they are known
 *
 * @typedef {object} MaskedRow  a sequence
 * @property {number} seq @property {number} position of its newest token
 * @property {MaskSource} [source] without one, every token may come next
 * @property {number} [offset] byte of its mask in the buffer of masks
 * @property {number[]} [forced] ids that come next
 * @property {() => Promise<number[] | undefined>} [fetchForced] the next ids where the source cannot sample, if any are known;
 *   undefined: the text has ended. Without it, the steps end there
 *
 * @typedef {object} Options
 * @property {MaskedRow[]} rows
 * @property {number} left tokens that may follow in each sequence
 * @property {number} most steps
 * @property {number} unchanged tokens in a row that the mask of a single sequence does not change, after which they end
 * @property {number} ms after which they end
 * @property {boolean} eager the logits after the last token are computed, too
 * @property {string[]} first lists of the first step @property {string[]} sample lists that sample
 * @property {string[]} forward lists that compute the logits
 * @property {Feeding} [feed] how to feed forced tokens of a single sequence; without it, they are sampled, or the steps end there
 * @property {GPUBuffer} buffer of the masks @property {number} words of a mask
 *
 * @typedef {object} Feeding
 * @property {string[]} one lists that compute the logits after one token @property {string[]} batch after several
 * @property {number} most tokens of a batch
 *
 * @typedef {object} SampledRow
 * @property {number[]} ids
 * @property {boolean[]} changed by the mask, of those that were not forced
 * @property {number[]} forced ids that come next
 * @property {boolean} ended nothing may follow
 * @property {number} maskMs that its masks took
 * @property {string} error of the constraint, after these tokens; "": none
 */

const DUE_SHARE = 0.95; // of the shortest time: earlier, the browser still encodes commands, and to look for the result would delay it
const GROWTH = 1.02; // of the shortest time per step, as contexts grow

export class Masking {
  /** @param {import("./replay.js").Replay} replay */
  constructor(replay) {
    this.replay = replay;
    /** @type {Map<number, number>} the shortest time of a step until its result, by the number of its rows */
    this.shortestMs = new Map();
    this.ends = false;
    /** @type {Promise<unknown>} */
    this.ended = Promise.resolve();
  }

  /** @param {Options} options @returns {Promise<{ rows: SampledRow[], ms: number }>} */
  sample(options) {
    this.ends = false;
    const sampled = this.run(options);
    this.ended = sampled.catch(() => {}); // the caller reports it
    return sampled;
  }

  /** @param {Options} options */
  async run({ rows, left, most, unchanged, ms, eager, first, sample, forward, feed, buffer, words }) {
    const { replay } = this;
    const answers = rows.map((row) => new MaskedSequence(row, words));
    const end = performance.now() + ms;
    /** The sequences' tokens after some steps. @param {number} steps */
    const placesAfter = (steps) => rows.map(({ seq, position }) => ({ seq, position: position + steps }));
    let [steps, took] = [0, 0];
    let goesOn = true;
    /** @type {import("./replay.js").Forward | undefined} of the step after the one that is submitted */
    let encoded;
    while (goesOn) {
      for (const answer of answers) await answer.findForced();
      if (feed && answers[0].sampled.forced.length)
        steps += this.#feed(answers[0], feed, rows[0], steps, Math.min(most, left));
      if (answers.some(({ stopped }) => stopped)) break;
      const masks = [];
      for (const answer of answers) masks.push(await answer.mask()); // one thread makes them all
      if (answers.some(({ stopped }) => stopped)) break;
      for (const [i, mask] of masks.entries())
        if (mask) replay.device.queue.writeBuffer(buffer, rows[i].offset ?? 0, mask.subarray(0, words));
      const places = placesAfter(steps);
      const [sequences, positions] = [rows.map(({ seq }) => seq), places.map(({ position }) => position)];
      replay.decode({ sequences, positions, steps: 1, lists: steps ? sample : first, rows: false });
      steps++;
      goesOn = steps < most && performance.now() < end;
      if (steps < left && (goesOn || eager)) replay.forward(placesAfter(steps), forward, encoded);
      encoded = goesOn && steps + 1 < left ? replay.encodeForward(placesAfter(steps + 1), forward) : undefined;
      if (encoded) replay.flush();
      const shortest = this.shortestMs.get(rows.length) ?? 0;
      const result = await replay.result(shortest, DUE_SHARE).catch((error) => {
        if (steps === 1) throw error;
      });
      if (!result) break; // the device is lost, but not the tokens before
      this.shortestMs.set(rows.length, Math.min(result.ms, GROWTH * (shortest || result.ms)));
      took += result.ms;
      answers.forEach((answer, i) => answer.accept(result.ids[i], result.resampled[i]));
      goesOn &&= !this.ends && !answers.some(({ error }) => error);
      goesOn &&= answers.length > 1 || !answers[0].unchanged(unchanged);
    }
    return { rows: answers.map(({ sampled }) => sampled), ms: took };
  }

  /**
   * Feeds the forced tokens of a sequence and computes the logits after them. Returns how many; 0: they end the steps.
   * @param {MaskedSequence} answer @param {Feeding} feed @param {MaskedRow} row @param {number} steps before them
   * @param {number} most tokens in all; the last one is sampled
   */
  #feed(answer, { one, batch, most: atOnce }, { seq, position }, steps, most) {
    const ids = answer.sampled.forced;
    if (ids.length > atOnce || steps + ids.length >= most) {
      answer.stopped = true; // Python feeds them
      return 0;
    }
    const lists = ids.length === 1 ? one : batch;
    if (!answer.acceptForced()) return 0;
    this.replay.feed(seq, position + steps + 1, Uint32Array.from(ids), lists, false, false);
    return ids.length;
  }

  /** Ends sample() after the step that it has submitted. */
  stop() {
    this.ends = true;
  }

  /** Ends sample(), and waits until it has. */
  async end() {
    this.stop();
    await this.ended;
  }
}

/** What is known of one sequence's tokens. */
class MaskedSequence {
  /** @param {MaskedRow} row @param {number} words of a mask */
  constructor({ source, forced = [], fetchForced }, words) {
    this.source = source;
    this.fetchForced = fetchForced;
    this.words = words;
    this.begun = false;
    this.stopped = false; // its next token cannot be sampled
    /** @type {SampledRow} */
    this.sampled = { ids: [], changed: [], forced: [...forced], ended: false, maskMs: 0, error: "" };
  }

  get error() {
    return this.sampled.error;
  }

  /** Finds the tokens that come next where the source cannot sample. Where they are not known, it has `stopped`. */
  async findForced() {
    const { source, sampled } = this;
    if (source && !sampled.forced.length && (this.begun || this.fetchForced))
      await this.#timed(async () => source.canSample() || (await this.#fetch(source)));
    this.begun = true;
  }

  /** @param {MaskSource} source */
  async #fetch(source) {
    const forced = source.forcedIds?.() ?? (await this.fetchForced?.());
    this.sampled.forced = [...(forced ?? [])];
    this.sampled.ended = Boolean(this.fetchForced) && !forced;
    this.stopped = !forced;
  }

  /** The mask of the next token; undefined: it needs none, or it has `stopped`. @returns {Promise<Int32Array | undefined>} */
  async mask() {
    const { source, sampled } = this;
    if (!source) return undefined;
    return this.#timed(async () => (sampled.forced.length ? only(sampled.forced[0], this.words) : source.mask()));
  }

  /** @template T @param {() => Promise<T>} call of the source @returns {Promise<T | undefined>} undefined: it has failed */
  async #timed(call) {
    const began = performance.now();
    try {
      return await call();
    } catch (error) {
      this.sampled.error = String(error);
      this.stopped = true;
    } finally {
      this.sampled.maskMs += performance.now() - began;
    }
  }

  /** Advances past the forced tokens, which are fed. @returns {boolean} whether the source accepts them */
  acceptForced() {
    const { sampled } = this;
    const accepted = sampled.forced.every((id) => this.#advance(id));
    sampled.forced = [];
    this.stopped = !accepted;
    return accepted;
  }

  /** @param {number} id that was sampled @param {boolean} changed by the mask */
  accept(id, changed) {
    const { sampled } = this;
    if (!this.#advance(id)) return;
    if (sampled.forced.length) sampled.forced.shift();
    else sampled.changed.push(changed);
  }

  /** @param {number} id of the next token @returns {boolean} whether the source accepts it */
  #advance(id) {
    const { source, sampled } = this;
    try {
      if (source && !source.accept(id)) sampled.error = `it rejects token ${id}`;
    } catch (error) {
      sampled.error = String(error);
    }
    if (!sampled.error) sampled.ids.push(id);
    return !sampled.error;
  }

  /** Whether the mask has changed none of the newest tokens. @param {number} tokens */
  unchanged(tokens) {
    const { changed } = this.sampled;
    return changed.length >= tokens && !changed.slice(-tokens).includes(true);
  }
}

/** The mask that allows one token. @param {number} token @param {number} words */
function only(token, words) {
  const mask = new Int32Array(words);
  mask[token >> 5] = 1 << (token & 31);
  return mask;
}
