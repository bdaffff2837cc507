/**
 * Replays recorded command lists, so that no Python runs per token or per dispatch.
 *
 * Each submit is one command encoder and one compute pass with several steps. The sampled ids are copied from the GPU's
 * token buffer and mapped some submits later, so the GPU never waits for the host. Chromium polls for finished work
 * only about every 2 ms while nothing else reaches the GPU process.
 */

import { Lists } from "./lists.js";

/**
 * @typedef {object} Shared  numbers and names that Python defines (plan/shared.py, plan/lists.py)
 * @property {number} probeMs how long a result that should come soon is looked for; 0: only waited for
 * @property {number} maxSteps tokens of each sequence in a submit
 * @property {number} maxSmallBatch tokens of a small batch; sequences that run side by side
 * @property {number} logprobRows rows of the log-probability buffer; a position's row is position % logprobRows
 * @property {number} logprobRowBytes
 * @property {string[]} stateFields names of a State's u32 (wgsl/lib/state.wgsl), in order
 * @property {string[]} draftingFields names of Drafting's u32 (wgsl/advance.wgsl), in order
 * @property {string} decode @property {string} smallBatch @property {string} smallBatchLogits
 * @property {string} sampleEach @property {string} verifyDraft @property {string} sample
 *
 * @typedef {object} Buffers
 * @property {GPUBuffer} tokens u32 ids (sequence, position)
 * @property {GPUBuffer} state State of one sequence
 * @property {GPUBuffer} [states] State of each token of a small batch; absent for encoders
 * @property {GPUBuffer} [logprobs] (logprobRows, entries)
 * @property {GPUBuffer} [drafting] Drafting
 *
 * @typedef {object} Batch
 * @property {Uint32Array} ids sampled ids, sequence by sequence
 * @property {Uint32Array} rows a row of log-probabilities for each id, where they were requested
 * @property {number} resampled how often a mask has rejected the first choice so far
 * @property {number} ms since the batch before
 * @property {number} steps that produced the ids; 0: they existed before, for the sequences in `sampled`
 * @property {boolean[]} sampled
 *
 * @typedef {{ seq: number, position: number }} Place  where a sequence's next token will be written
 *
 * @typedef {object} InFlight  a read-back that is on the GPU
 * @property {GPUBuffer} staging
 * @property {number} count tokens of each sequence; 0: only those that existed before
 * @property {number} sequences
 * @property {number} from position of the first sequence's first token
 * @property {boolean} rows
 * @property {boolean[]} [sampled]
 * @property {Promise<void>} mapped
 */

export class Replay extends Lists {
  /** @param {GPUDevice} device @param {Buffers} buffers @param {number} capacity tokens of each sequence @param {Shared} shared */
  constructor(device, buffers, capacity, shared) {
    super(device, shared.probeMs);
    this.buffers = buffers;
    this.capacity = capacity;
    this.shared = shared;
    this.idBytes = 4 * shared.maxSteps * shared.maxSmallBatch;
    this.stateBytes = 4 * shared.stateFields.length;
    /** @type {GPUBuffer[]} staging buffers for reuse */
    this.free = [];
    /** @type {InFlight[]} oldest first */
    this.inFlight = [];
    /** @type {Place[]} of the sequences that are decoded */
    this.places = [];
    this.drafting = false; // a small batch holds one sequence's last token and its draft: a step may yield several
    this.left = 0; // tokens of each sequence that may still be submitted
    /** @type {string[]} lists that sample a token from logits */
    this.samplers = [shared.sample];
    this.withRows = false; // read log-probabilities back, too
    this.pending = false; // the last sampled token has not gone through the layers
    this.steps = 1; // tokens of each sequence in a submit
    this.ahead = 2; // submits on the GPU before the oldest is awaited
    this.since = 0;
    this.batches = 0; // returned since begin()
    this.warm = false; // the queue of submits was full, so the last batch's time is that of its steps alone
  }

  /** Sets one sequence's state. @param {number} seq @param {number} position of the batch's first token @param {number} n */
  place(seq, position, n) {
    for (const [field, value] of Object.entries({ pos: position, n, seq })) {
      const offset = 4 * this.shared.stateFields.indexOf(field);
      this.device.queue.writeBuffer(this.buffers.state, offset, new Uint32Array([value]));
    }
  }

  /** Sets the state of each token of a small batch. @param {Place[]} places */
  placeBatch(places) {
    if (!this.buffers.states) return;
    const n = places.length;
    const states = places.flatMap(({ seq, position }) => words(this.shared.stateFields, { pos: position, n, seq }));
    this.device.queue.writeBuffer(this.buffers.states, 0, new Uint32Array(states));
  }

  /** Byte offset of a sequence's position in the token buffer. @param {Place} place */
  tokenOffset({ seq, position }) {
    return 4 * (seq * this.capacity + position);
  }

  /**
   * Writes tokens of a sequence at their positions and runs lists over them in one pass.
   * @param {number} seq @param {number} position @param {Uint32Array} ids @param {string[]} lists
   */
  feed(seq, position, ids, lists) {
    if (this.pending) this.forward();
    this.device.queue.writeBuffer(this.buffers.tokens, this.tokenOffset({ seq, position }), ids);
    this.place(seq, position, ids.length);
    if (ids.length <= this.shared.maxSmallBatch)
      this.placeBatch(Array.from(ids, (_, i) => ({ seq, position: position + i })));
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      for (const list of lists) this.encode(pass, list, ids.length);
      pass.end();
    });
  }

  /**
   * Feeds sequences one after the other, each from position 0 on, and reads `width` floats of a buffer after each one.
   * All of them are submitted before the first is awaited.
   * @param {Uint32Array} ids of all sequences @param {number[]} lengths tokens of each sequence
   * @param {number} batch tokens of a batch at most @param {string[]} lists run over each batch
   * @param {{ buffer: GPUBuffer, offset: number, width: number }} row
   * @returns {Promise<Float32Array>} (sequences, width)
   */
  async pooledRows(ids, lengths, batch, lists, { buffer, offset, width }) {
    const usage = GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ;
    const staging = this.device.createBuffer({ size: 4 * width * lengths.length, usage });
    let start = 0;
    lengths.forEach((length, i) => {
      for (let at = 0; at < length; at += batch)
        this.feed(0, at, ids.subarray(start + at, start + Math.min(at + batch, length)), lists);
      start += length;
      this.submit((encoder) => encoder.copyBufferToBuffer(buffer, offset, staging, 4 * width * i, 4 * width));
    });
    const begun = performance.now();
    try {
      const mapping = staging.mapAsync(GPUMapMode.READ);
      await (lengths.length === 1 ? this.soon(mapping) : mapping);
      this.counts.wait_ms += performance.now() - begun;
      return new Float32Array(staging.getMappedRange()).slice();
    } finally {
      staging.destroy();
    }
  }

  /**
   * Begins decoding one sequence at `position`. The last feed() computed the first token's logits and, if `sampled`,
   * sampled it.
   * @param {number} seq @param {number} position @param {number} count at most, including that token
   * @param {number} steps @param {number} ahead @param {boolean} sampled
   */
  start(seq, position, count, steps, ahead, sampled) {
    this.begin({ places: [{ seq, position }], left: count, steps, ahead, pending: sampled, drafting: false });
    if (sampled) this.read(1);
  }

  /**
   * Begins decoding several sequences together, or one with drafts.
   * @param {object} options
   * @param {number[]} options.sequences @param {number[]} options.positions of their next tokens
   * @param {boolean[]} options.sampled whether that token exists already and is only read back
   * @param {number} options.count of each at most, beyond that token
   * @param {number} options.steps @param {number} options.ahead @param {boolean} options.drafting
   */
  startBatch({ sequences, positions, sampled, count, steps, ahead, drafting }) {
    const places = sequences.map((seq, i) => ({ seq, position: positions[i] }));
    this.begin({ places, left: count, steps, ahead, pending: true, drafting });
    if (sampled.includes(true)) this.readSampled(sampled);
    if (places.length === 1 && !drafting) return this.place(places[0].seq, places[0].position - 1, 1);
    this.placeBatch(places.map(({ seq, position }) => ({ seq, position: position - 1 })));
    if (!drafting || !this.buffers.drafting) return;
    const start = words(this.shared.draftingFields, { end: this.capacity - 2, length: 2 });
    this.device.queue.writeBuffer(this.buffers.drafting, 0, new Uint32Array(start));
  }

  /** @param {{ places: Place[], left: number, steps: number, ahead: number, pending: boolean, drafting: boolean }} run */
  begin(run) {
    Object.assign(this, run, { since: performance.now(), warm: false, batches: 0 });
  }

  /** Reads back tokens that exist already. @param {boolean[]} sampled for which sequences */
  readSampled(sampled) {
    const staging = this.staging();
    this.submit((encoder) => {
      this.places.forEach((place, i) => {
        if (!sampled[i]) return;
        encoder.copyBufferToBuffer(this.buffers.tokens, this.tokenOffset(place), staging, 4 * i, 4);
        place.position += 1;
      });
    });
    this.track({ staging, count: 0, sequences: this.places.length, from: 0, rows: false, sampled }, true);
  }

  /** A buffer to read ids, a state and rows of log-probabilities from. */
  staging() {
    const usage = GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ;
    const { maxSteps, logprobRowBytes } = this.shared;
    const size = this.idBytes + this.stateBytes + (this.withRows ? maxSteps * logprobRowBytes : 0);
    let free = this.free.pop();
    if (free && free.size < size) free = void free.destroy();
    return free ?? this.device.createBuffer({ size, usage });
  }

  /**
   * Copies the next `count` tokens of each sequence into a staging buffer, after a pass or in a submit of its own.
   * @param {number} count @param {GPUCommandEncoder} [encoder]
   */
  read(count, encoder) {
    const into = this.staging();
    const { places, drafting, buffers } = this;
    const from = places[0].position;
    // How many tokens a draft yields is not known yet: copy as many as there can be.
    const tokens = drafting ? this.shared.maxSmallBatch * this.submitted(count) : count;
    /** @param {GPUCommandEncoder} to */
    const copy = (to) => {
      places.forEach((place, i) => {
        const bytes = 4 * Math.min(tokens, this.capacity - place.position);
        to.copyBufferToBuffer(buffers.tokens, this.tokenOffset(place), into, 4 * i * count, bytes);
      });
      const state = drafting && buffers.states ? buffers.states : buffers.state;
      to.copyBufferToBuffer(state, 0, into, this.idBytes, this.stateBytes);
      if (this.withRows) this.copyRows(to, from, count, into);
    };
    if (encoder) copy(encoder);
    else this.submit(copy);
    if (!drafting) {
      for (const place of places) place.position += count;
      this.left -= count;
    }
    return this.track({ staging: into, count, sequences: places.length, from, rows: this.withRows }, !encoder);
  }

  /** Steps on the GPU, plus `more`. @param {number} more */
  submitted(more) {
    return this.inFlight.reduce((sum, { count }) => sum + count, more);
  }

  /** @param {GPUCommandEncoder} to @param {number} position @param {number} count @param {GPUBuffer} into */
  copyRows(to, position, count, into) {
    const { logprobs } = this.buffers;
    if (!logprobs) return;
    const { logprobRows, logprobRowBytes } = this.shared;
    const first = position % logprobRows;
    const straight = Math.min(count, logprobRows - first); // the other rows wrap around to the buffer's start
    const at = this.idBytes + this.stateBytes;
    to.copyBufferToBuffer(logprobs, first * logprobRowBytes, into, at, straight * logprobRowBytes);
    if (straight === count) return;
    const rest = (count - straight) * logprobRowBytes;
    to.copyBufferToBuffer(logprobs, 0, into, at + straight * logprobRowBytes, rest);
  }

  /**
   * Queues a read-back. Returns the function that maps it, which must run after its submit.
   * @param {Omit<InFlight, "mapped">} read @param {boolean} submitted already: map it now
   */
  track(read, submitted) {
    const batch = { ...read, mapped: Promise.resolve() };
    const map = () => {
      batch.mapped = batch.staging.mapAsync(GPUMapMode.READ);
      batch.mapped.catch(() => {}); // take() reports it
      this.inFlight.push(batch);
    };
    if (submitted) map();
    return map;
  }

  /** The last token of every sequence, or one and its draft, through the layers. @param {GPUComputePassEncoder} pass */
  encodeForward(pass) {
    const { drafting, places, shared } = this;
    if (!drafting && places.length === 1) return this.encode(pass, shared.decode, 1);
    const n = drafting ? shared.maxSmallBatch : places.length;
    this.encode(pass, shared.smallBatch, n);
    this.encode(pass, shared.smallBatchLogits, n);
  }

  /** @param {GPUComputePassEncoder} pass */
  encodeSampling(pass) {
    const { shared, places } = this;
    if (this.drafting) return this.encode(pass, shared.verifyDraft, shared.maxSmallBatch);
    if (places.length > 1) return this.encode(pass, shared.sampleEach, places.length);
    for (const list of this.samplers) this.encode(pass, list, 1);
  }

  /**
   * Submits up to `limit` decode steps. `eager`: also submit the last token's forward pass right away, which the
   * read-back does not wait for; else the next step runs it.
   * @param {number} limit @param {boolean} eager
   */
  step(limit = this.steps, eager = false) {
    const count = Math.min(limit, this.left, this.shared.maxSteps);
    let map = () => {};
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      for (let i = 0; i < count; i++) {
        if (this.pending) this.encodeForward(pass);
        this.encodeSampling(pass);
        this.pending = true;
      }
      pass.end();
      map = this.read(count, encoder);
    });
    map();
    if (eager && this.left > 0) this.forward(); // the context may end here
    return count;
  }

  /** Submits the last tokens' forward pass. */
  forward() {
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      this.encodeForward(pass);
      pass.end();
    });
    this.pending = false;
  }

  /** Whether another submit may follow. With drafts, each of its steps may take maxSmallBatch positions. */
  fits() {
    if (!this.drafting) return this.left > 0;
    const { maxSmallBatch, maxSteps } = this.shared;
    const free = this.capacity - 1 - this.places[0].position;
    return this.left > 0 && maxSmallBatch * this.submitted(this.steps) <= Math.min(free, maxSteps * maxSmallBatch);
  }

  /** Fills the GPU's queue, then returns the next tokens. @returns {Promise<Batch | undefined>} undefined at the end */
  async next() {
    while (this.inFlight.length <= this.ahead && this.fits()) this.step();
    return this.take();
  }

  /** The tokens of the oldest submit. @returns {Promise<Batch | undefined>} undefined when there is none */
  async take() {
    const batch = this.inFlight[0];
    if (!batch) return undefined;
    const begun = performance.now();
    await (batch.count > 1 ? batch.mapped : this.soon(batch.mapped));
    this.counts.wait_ms += performance.now() - begun;
    this.inFlight.shift();
    const { staging, count, sequences, from, sampled = [] } = batch;
    const { stateFields, logprobRowBytes } = this.shared;
    const rest = new Uint32Array(staging.getMappedRange(this.idBytes)); // a State, then rows of log-probabilities
    let [first, end] = [0, sequences * (count || 1)];
    if (this.drafting && count) {
      const next = rest[stateFields.indexOf("pos")] + 1;
      first = this.places[0].position - from;
      end = next - from;
      this.left -= Math.min(this.left, end - first);
      this.places[0].position = next;
    }
    const ids = new Uint32Array(staging.getMappedRange(0, this.idBytes)).slice(first, end);
    const resampled = rest[stateFields.indexOf("resampled")];
    const rows = batch.rows
      ? rest.slice(stateFields.length, stateFields.length + (count * logprobRowBytes) / 4)
      : new Uint32Array();
    staging.unmap();
    this.free.push(staging);
    const now = performance.now();
    const ms = now - this.since;
    this.since = now;
    this.batches += 1;
    this.warm = this.batches > this.ahead + 2;
    return { ids, rows, resampled, ms, steps: count, sampled };
  }

  /**
   * Drops what was decoded from `position` on and recomputes the logits of that position. Steps still on the GPU run
   * first; their results are not read.
   * @param {number} position @param {number} count tokens at most from there on
   */
  rewind(position, count) {
    for (const { mapped, staging } of this.inFlight) {
      mapped.then(() => {
        staging.unmap();
        this.free.push(staging);
      }, Object);
    }
    this.inFlight = [];
    const [{ seq }] = this.places;
    Object.assign(this, { places: [{ seq, position }], left: count });
    this.place(seq, position - 1, 1);
    this.forward();
  }

  /** Ends decoding: work on the GPU finishes, and its results are dropped. */
  async stop() {
    this.left = 0;
    this.pending = false;
    while (this.inFlight.length) await this.take();
  }
}

/** A struct's words in order; fields without a value are 0. @param {string[]} fields @param {Record<string, number>} values */
const words = (fields, values) => fields.map((field) => values[field] ?? 0);
