/**
 * Samples tokens of one sequence in turn, each with the mask that a constraint has after the one before. No Python runs
 * between two of them, and the next mask is made while the GPU computes the logits.
 *
 * @typedef {object} MaskSource  a constraint, such as a grammar
 * @property {() => Promise<Int32Array>} mask a bit for each token that may come next
 * @property {(token: number) => boolean} accept advances past a token
 * @property {() => boolean} canSample whether the next token can be sampled at once: none is forced, and the text has not ended
 *
 * @typedef {object} Options
 * @property {import("./replay.js").Place} newest the sequence's newest token
 * @property {number} left tokens that may follow
 * @property {number} most of them, after which it ends
 * @property {number} unchanged tokens in a row that no mask changes, after which it ends
 * @property {number} ms after which it ends
 * @property {string[]} first lists of the first step @property {string[]} sample lists that sample
 * @property {string[]} forward lists that compute the logits
 * @property {{ buffer: GPUBuffer, offset: number, words: number }} place of the mask
 *
 * @typedef {{ ids: number[], changed: boolean[], ms: number, error: string }} Sampled  `changed`: by the mask; `error`: of
 *   the constraint, after these tokens; "": none
 */

const GROWTH = 1.02; // of the shortest time per token, as contexts grow

export class Masking {
  /** @param {import("./replay.js").Replay} replay */
  constructor(replay) {
    this.replay = replay;
    this.shortestMs = 0; // that a token takes until its result; 0: not known
    this.ends = false;
    /** @type {Promise<unknown>} */
    this.ended = Promise.resolve();
  }

  /** @param {MaskSource} source @param {Options} options @returns {Promise<Sampled>} */
  sample(source, options) {
    this.ends = false;
    const sampled = this.run(source, options);
    this.ended = sampled.catch(() => {}); // the caller reports it
    return sampled;
  }

  /** @param {MaskSource} source @param {Options} options @returns {Promise<Sampled>} */
  async run(source, { newest, left, most, unchanged, ms, first, sample, forward, place }) {
    const { replay } = this;
    const { seq, position } = newest;
    const end = performance.now() + ms;
    const found = /** @type {Sampled} */ ({ ids: [], changed: [], ms: 0, error: "" });
    const { ids, changed } = found;
    do {
      const mask = await source.mask().catch((error) => void (found.error = String(error)));
      if (!mask) return found;
      replay.device.queue.writeBuffer(place.buffer, place.offset, mask.subarray(0, place.words));
      const [at, lists] = [position + ids.length, ids.length ? sample : first];
      replay.decode({ sequences: [seq], positions: [at], steps: 1, lists, rows: false });
      if (ids.length + 1 < left) replay.forward({ seq, position: at + 1 }, forward);
      // To look for the result earlier would delay it: the browser still encodes the commands.
      const result = await replay.result(this.shortestMs).catch((error) => {
        if (!ids.length) throw error;
      });
      if (!result) return found; // the device is lost, but not the tokens before
      this.shortestMs = Math.min(result.ms, GROWTH * (this.shortestMs || result.ms));
      const [id] = result.ids;
      if (!source.accept(id)) return { ...found, error: `it rejects token ${id}` };
      ids.push(id);
      changed.push(result.resampled);
      found.ms += result.ms;
    } while (
      !this.ends &&
      ids.length < most &&
      performance.now() < end &&
      (ids.length < unchanged || changed.slice(-unchanged).includes(true)) &&
      source.canSample()
    );
    return found;
  }

  /** Ends sample(), and waits until it has. */
  async end() {
    this.ends = true;
    await this.ended;
  }
}
