/**
 * Replays recorded command lists: everything that happens per token, so that Python is not asked per dispatch.
 *
 * A batch of tokens is one command encoder, one compute pass and one submit; the ids that the GPU chose are copied out
 * of its token buffer and mapped some submits later, so that the GPU never waits for us. Chromium looks for finished work only every 2 ms or so when nothing else reaches the GPU process.
 */

import { Lists } from "./lists.js";

const MOST_STEPS = 64; // in a submit
const FEW = 8; // sequences side by side, and tokens of a step that guesses
const ID_BYTES = 4 * MOST_STEPS * FEW;
const STATE_BYTES = 16; // u32 pos, n, resampled, seq
const LOGPROB_ROWS = 512; // rows of the buffer of log-probabilities: position % LOGPROB_ROWS; sampler_ops.py has them too
const ROW_BYTES = 21 * 8;

/**
 * @typedef {{ ids: Uint32Array, rows: Uint32Array, resampled: number, ms: number, steps: number,
 *   chosen: boolean[] }} Batch  ids the GPU
 *   chose, of each sequence in turn, a row of log-probabilities for each where they are wanted, how often so far the mask
 *   made it choose again, milliseconds since the batch before, steps that it took; 0: of which sequences
 *   the tokens are
 * @typedef {{ seq: number, position: number }} Place  where the next token of a sequence will be written
 * @typedef {{ staging: GPUBuffer, count: number, sequences: number, from: number, rows: boolean, chosen?: boolean[],
 *   mapped: Promise<void> }} Flying  `count` tokens of each; 0: one of those that are `chosen` already
 */

export class Replay extends Lists {
  /**
   * @param {GPUDevice} device @param {GPUBuffer} tokens u32 ids by sequence and position @param {number} room of each
   * @param {GPUBuffer} state of one sequence @param {GPUBuffer} states of FEW tokens, not there where only one is generated @param {GPUBuffer} logprobs rows of
   *   them by position % LOGPROB_ROWS @param {GPUBuffer} drafting u32 end, most
   */
  constructor(device, tokens, room, state, states, logprobs, drafting) {
    super(device);
    this.tokens = tokens;
    this.room = room;
    this.state = state;
    this.states = states;
    this.logprobs = logprobs;
    this.drafting = drafting;
    /** @type {GPUBuffer[]} */
    this.free = [];
    /** @type {Flying[]} batches on the GPU, oldest first */
    this.flying = [];
    /** @type {Place[]} of the sequences that are generated; one: by "decode", several: by "few" and "each" */
    this.places = [];
    this.guesses = false; // "few" and "each" on the last token of one and guesses: a step may give several
    this.left = 0; // tokens of each that may still be submitted
    /** @type {string[]} */
    this.samplers = ["sample"]; // the lists that choose a token from logits
    this.withRows = false; // read log-probabilities back, too
    this.owed = false; // whether the last token has not gone through the layers
    this.steps = 1; // tokens of each in a submit
    this.ahead = 2; // submits on the GPU before the oldest is awaited
    this.since = 0;
    this.batches = 0; // handed out since start()
    this.warm = false; // whether the last batch's time is that of its steps: the pipeline of submits was full
  }

  /** Where one sequence stands. @param {number} seq @param {number} position of the batch's first token @param {number} n */
  place(seq, position, n) {
    this.device.queue.writeBuffer(this.state, 0, new Uint32Array([position, n]));
    this.device.queue.writeBuffer(this.state, 12, new Uint32Array([seq]));
  }

  /** Where each token of a batch stands. @param {Place[]} places */
  placeEach(places) {
    const states = places.flatMap(({ seq, position }) => [position, places.length, 0, seq]);
    this.device.queue.writeBuffer(this.states, 0, new Uint32Array(states));
  }

  /**
   * Puts tokens of a sequence at their positions and runs lists over them in one pass.
   * @param {number} seq @param {number} position @param {Uint32Array} ids @param {string[]} lists
   */
  feed(seq, position, ids, lists) {
    if (this.owed) this.forward();
    this.device.queue.writeBuffer(this.tokens, 4 * (seq * this.room + position), ids);
    this.place(seq, position, ids.length);
    if (this.states && ids.length <= FEW) this.placeEach(Array.from(ids, (_, i) => ({ seq, position: position + i })));
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      for (const list of lists) this.encode(pass, list, ids.length);
      pass.end();
    });
  }

  /**
   * From here on tokens of a sequence are generated, the first at `position`. What feed() submitted computes its logits
   * and, `chosen`, chooses it.
   * @param {number} seq @param {number} position @param {number} count tokens at most, with that one @param {number} steps
   * @param {number} ahead @param {boolean} chosen
   */
  start(seq, position, count, steps, ahead, chosen) {
    this.begin([{ seq, position }], count, steps, ahead, chosen);
    if (chosen) this.read(1);
  }

  /**
   * From here on the next tokens of sequences are handed out; of one, with guesses.
   * @param {number[]} sequences @param {number[]} positions of their next tokens @param {boolean[]} chosen whether that
   *   token is there already, so that it is read only @param {number} count of each at most, without that one
   * @param {number} steps @param {number} ahead @param {boolean} guesses
   */
  startEach(sequences, positions, chosen, count, steps, ahead, guesses) {
    const places = sequences.map((seq, i) => ({ seq, position: positions[i] }));
    this.begin(places, count, steps, ahead, true, guesses);
    if (chosen.includes(true)) this.readChosen(chosen);
    if (places.length === 1 && !guesses) return this.place(places[0].seq, places[0].position - 1, 1);
    this.placeEach(places.map(({ seq, position }) => ({ seq, position: position - 1 })));
    if (guesses) this.device.queue.writeBuffer(this.drafting, 0, new Uint32Array([this.room - 2, 2]));
  }

  /** @param {Place[]} places @param {number} left @param {number} steps @param {number} ahead @param {boolean} owed @param {boolean} guesses */
  begin(places, left, steps, ahead, owed, guesses = false) {
    Object.assign(this, {
      places,
      left,
      steps,
      ahead,
      owed,
      guesses,
      since: performance.now(),
      warm: false,
      batches: 0,
    });
  }

  /** Copies the tokens out that are there already. @param {boolean[]} chosen of which sequences */
  readChosen(chosen) {
    const staging = this.staging();
    this.submit((encoder) => {
      this.places.forEach((place, i) => {
        if (!chosen[i]) return;
        const at = 4 * (place.seq * this.room + place.position);
        encoder.copyBufferToBuffer(this.tokens, at, staging, 4 * i, 4);
        place.position += 1;
      });
    });
    this.fly({ staging, count: 0, sequences: this.places.length, from: 0, rows: false, chosen }, true);
  }

  /** A buffer to read tokens from, and all that is read with them. */
  staging() {
    const usage = GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ;
    const size = ID_BYTES + STATE_BYTES + (this.withRows ? MOST_STEPS * ROW_BYTES : 0);
    let free = this.free.pop();
    if (free && free.size < size) free = void free.destroy();
    return free ?? this.device.createBuffer({ size, usage });
  }

  /** Copies the next `count` tokens of the GPU's buffer out, in a submit of their own or behind a pass. @param {number} count @param {GPUCommandEncoder} [encoder] */
  read(count, encoder) {
    const into = this.staging();
    const { places, guesses } = this;
    const from = places[0].position;
    const wanted = guesses ? FEW * this.submitted(count) : count; // of guesses nobody knows how many there will be
    /** @param {GPUCommandEncoder} to */
    const copy = (to) => {
      places.forEach(({ seq, position }, i) => {
        const at = 4 * (seq * this.room + position);
        to.copyBufferToBuffer(this.tokens, at, into, 4 * i * count, 4 * Math.min(wanted, this.room - position));
      });
      to.copyBufferToBuffer(guesses ? this.states : this.state, 0, into, ID_BYTES, STATE_BYTES);
      if (this.withRows) this.copyRows(to, from, count, into);
    };
    if (encoder) copy(encoder);
    else this.submit(copy);
    if (!guesses) {
      for (const place of places) place.position += count;
      this.left -= count;
    }
    return this.fly({ staging: into, count, sequences: places.length, from, rows: this.withRows }, !encoder);
  }

  /** Steps that are on the GPU, with `more`. @param {number} more */
  submitted(more) {
    return this.flying.reduce((sum, { count }) => sum + count, more);
  }

  /** @param {GPUCommandEncoder} to @param {number} position @param {number} count @param {GPUBuffer} into */
  copyRows(to, position, count, into) {
    const first = position % LOGPROB_ROWS;
    const straight = Math.min(count, LOGPROB_ROWS - first); // the others begin at the buffer's start
    const at = ID_BYTES + STATE_BYTES;
    to.copyBufferToBuffer(this.logprobs, first * ROW_BYTES, into, at, straight * ROW_BYTES);
    if (straight === count) return;
    to.copyBufferToBuffer(this.logprobs, 0, into, at + straight * ROW_BYTES, (count - straight) * ROW_BYTES);
  }

  /** @param {Omit<Flying, "mapped">} read @param {boolean} submitted */
  fly(read, submitted) {
    const batch = { ...read, mapped: Promise.resolve() };
    const map = () => {
      batch.mapped = batch.staging.mapAsync(GPUMapMode.READ);
      batch.mapped.catch(() => {}); // take() reports it
      this.flying.push(batch);
    };
    if (submitted) map();
    return map;
  }

  /** The last token of every sequence, or one and guesses, through the layers. @param {GPUComputePassEncoder} pass */
  encodeForward(pass) {
    const { guesses, places } = this;
    if (!guesses && places.length === 1) return this.encode(pass, "decode", 1);
    const n = guesses ? FEW : places.length;
    this.encode(pass, "few", n);
    this.encode(pass, "each", n);
  }

  /** @param {GPUComputePassEncoder} pass */
  encodeChoice(pass) {
    if (this.guesses) return this.encode(pass, "draft", FEW);
    if (this.places.length > 1) return this.encode(pass, "choose", this.places.length);
    for (const list of this.samplers) this.encode(pass, list, 1);
  }

  /**
   * One submit of up to `most` steps of generation. `eager`: and one more, that computes the logits behind them; the
   * tokens do not wait for it. Else the next step does.
   * @param {number} most @param {boolean} eager
   */
  step(most = this.steps, eager = false) {
    const count = Math.min(most, this.left, MOST_STEPS);
    let map = () => {};
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      for (let i = 0; i < count; i++) {
        if (this.owed) this.encodeForward(pass);
        this.encodeChoice(pass);
        this.owed = true;
      }
      pass.end();
      map = this.read(count, encoder);
    });
    map();
    if (eager && this.left > 0) this.forward(); // at the end there may be no room
    return count;
  }

  /** The last tokens through the layers, and their logits. */
  forward() {
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      this.encodeForward(pass);
      pass.end();
    });
    this.owed = false;
  }

  /** Whether another submit may follow: with guesses, each of its steps may take FEW positions. */
  fits() {
    if (!this.guesses) return this.left > 0;
    const room = this.room - 1 - this.places[0].position;
    return this.left > 0 && FEW * this.submitted(this.steps) <= Math.min(room, MOST_STEPS * FEW);
  }

  /** The next tokens, after handing the GPU enough to go on with. @returns {Promise<Batch | undefined>} undefined at the end */
  async next() {
    while (this.flying.length <= this.ahead && this.fits()) this.step();
    return this.take();
  }

  /** The tokens of the oldest submit. @returns {Promise<Batch | undefined>} undefined when there is none */
  async take() {
    const batch = this.flying[0];
    if (!batch) return undefined;
    const begun = performance.now();
    await batch.mapped;
    this.counts.wait_ms += performance.now() - begun;
    this.flying.shift();
    const { staging, count, sequences, from, chosen = [] } = batch;
    const rest = new Uint32Array(staging.getMappedRange(ID_BYTES));
    let [first, end] = [0, sequences * (count || 1)];
    if (this.guesses && count) {
      const next = rest[0] + 1;
      first = this.places[0].position - from;
      end = next - from;
      this.left -= Math.min(this.left, end - first);
      this.places[0].position = next;
    }
    const ids = new Uint32Array(staging.getMappedRange(0, ID_BYTES)).slice(first, end);
    const resampled = rest[2];
    const rows = batch.rows ? rest.slice(4, 4 + (count * ROW_BYTES) / 4) : new Uint32Array();
    staging.unmap();
    this.free.push(staging);
    const now = performance.now();
    const ms = now - this.since;
    this.since = now;
    this.batches += 1;
    this.warm = this.batches > this.ahead + 2;
    return { ids, rows, resampled, ms, steps: count, chosen };
  }

  /**
   * Forgets what was generated from `position` on, and computes the logits that choose the token there once more. What
   * is still on the GPU runs before that and comes to nothing.
   * @param {number} position @param {number} count tokens at most from there on
   */
  rewind(position, count) {
    for (const { mapped, staging } of this.flying) {
      mapped.then(() => {
        staging.unmap();
        this.free.push(staging);
      }, Object);
    }
    this.flying = [];
    const [{ seq }] = this.places;
    Object.assign(this, { places: [{ seq, position }], left: count });
    this.place(seq, position - 1, 1);
    this.forward();
  }

  /** Ends generation: what is on the GPU finishes and is dropped. */
  async stop() {
    this.left = 0;
    this.owed = false;
    while (this.flying.length) await this.take();
  }
}
