/**
 * Replays recorded command lists, so that no Python runs per token or per dispatch.
 *
 * Each submit is one command encoder and one compute pass with several steps. The sampled ids are copied from the GPU's
 * token buffer and mapped some submits later, so the GPU never waits for the host. Submits of any sequences may follow
 * each other; results come in the same order.
 */

import { EXPECTED_SHARE, Lists } from "./lists.js";
import { Masking } from "./masked.js";

const FIRST_COMMANDS = [12, 40]; // of a prompt, in submits of their own: an idle GPU runs them while the browser encodes the others

/**
 * @typedef {object} Shared  numbers and names that Python defines (plan/shared_constants.py)
 * @property {number} probeMs how long a result that should come soon is looked for; 0: only waited for
 * @property {number} maxSteps tokens of each sequence in a submit
 * @property {number} maxSmallBatch tokens of a small batch
 * @property {number} shortBatch tokens of one with drafts
 * @property {number} logprobRows rows of the log-probability buffer; a position's row is position % logprobRows
 * @property {number} logprobRowBytes
 * @property {string[]} stateFields names of a State's u32 (wgsl/lib/state.wgsl), in order
 * @property {string[]} draftingFields names of Drafting's u32 (wgsl/advance.wgsl), in order
 *
 * @typedef {object} Buffers
 * @property {GPUBuffer} tokens u32 ids (sequence, position)
 * @property {GPUBuffer} state a State per token of a small batch, then block tables (wgsl/lib/state.wgsl)
 * @property {GPUBuffer} [logprobs] (sequence, logprobRows, entries)
 * @property {GPUBuffer} [drafting] Drafting
 *
 * @typedef {{ seq: number, position: number }} Place  a sequence and the position of one of its tokens
 *
 * @typedef {{ places: Place[], buffer: GPUCommandBuffer, changes: number }} Forward  encoded commands, and how often the lists had changed before
 *
 * @typedef {object} Result
 * @property {Uint32Array} ids sampled ids, sequence by sequence
 * @property {Uint32Array} counts of the ids of each sequence, after steps with drafts
 * @property {Uint32Array} rows a row of log-probabilities for each id, where they were requested
 * @property {boolean[]} resampled whether a mask has rejected the first choice of a token, of each sequence
 * @property {number} ms since the result before, or since the submit if that was later
 * @property {boolean} queued the submit was on the GPU when the result before it came, so `ms` is its time alone
 *
 * @typedef {object} Drafted  the sequences that decode with drafts
 * @property {Place[]} next after the last token read back of each
 * @property {number} steps on the GPU
 * @property {number[]} ends only positions before them may be computed
 *
 * @typedef {object} InFlight  a read-back that is on the GPU
 * @property {GPUBuffer} staging
 * @property {number} count ids in it, as many of each sequence
 * @property {number[]} from position of each sequence's first id
 * @property {boolean} rows
 * @property {number} drafted steps with drafts: how many ids are new is known from what is read back; 0: none
 * @property {boolean} placed the States were written before it, so their counts of rejections began at 0
 * @property {number} submitted time
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
    this.statesBytes = this.stateBytes * shared.maxSmallBatch;
    /** @type {GPUBuffer[]} staging buffers for reuse */
    this.free = [];
    /** @type {InFlight[]} oldest first */
    this.inFlight = [];
    /** @type {Place[] | undefined} what the GPU's States will be after all that was submitted, if that is known */
    this.places = undefined;
    this.placed = false; // since the last read-back
    /** @type {Drafted} */
    this.drafted = { next: [], steps: 0, ends: [] };
    this.masking = new Masking(this);
    /** @type {number[]} counts of rejections in the States of the newest result */
    this.rejections = [];
    this.last = 0; // time of the last result
  }

  /** Writes the States of a batch of `n` tokens: of each token of a small batch, or of the first one. @param {Place[]} places @param {number} n */
  place(places, n) {
    const states = places.flatMap(({ seq, position }) => words(this.shared.stateFields, { pos: position, n, seq }));
    this.device.queue.writeBuffer(this.buffers.state, 0, new Uint32Array(states));
    this.placed = true;
  }

  /** Byte offset of a token in the token buffer. @param {Place} place */
  tokenOffset({ seq, position }) {
    return 4 * (seq * this.capacity + position);
  }

  /**
   * Writes tokens of a sequence at their positions and runs lists over them. `read`: also read back the id after the
   * last of them, `rows`: with its row of log-probabilities.
   * @param {number} seq @param {number} position @param {Uint32Array} ids @param {string[]} lists @param {boolean} read
   * @param {boolean} rows
   * @param {number} slices that the first list is cut into. Only the first one is submitted, up to all the lists; steps
   *   of other sequences may follow each. With `read`, each reads back, and what comes back before the last has no meaning
   * @returns {(() => void)[]} what submits the others, in order
   */
  feed(seq, position, ids, lists, read, rows, slices = 1) {
    const n = ids.length;
    this.device.queue.writeBuffer(this.buffers.tokens, this.tokenOffset({ seq, position }), ids);
    const states = n <= this.shared.maxSmallBatch ? n : 1;
    const places = Array.from({ length: states }, (_, i) => ({ seq, position: position + i }));
    const commands = this.commands(lists);
    const { length } = this.lists.get(lists[0]) ?? [];
    /** @param {number} i */
    const end = (i) => (i < slices - 1 ? Math.round(((i + 1) * length) / slices) : commands.length);
    /** @param {number} i @param {number} begin */
    const slice = (i, begin = end(i - 1)) => {
      let map = () => {};
      this.submit((encoder) => {
        this.run(encoder, commands.slice(begin, end(i)), n, position + n);
        if (read) map = this.read([{ seq, position: position + n }], 1, rows && i === slices - 1, encoder);
      });
      map();
    };
    const place = () => {
      this.place(places, n);
      this.places = undefined;
    };
    place();
    let begun = 0;
    for (const first of this.inFlight.length ? [] : FIRST_COMMANDS) {
      if (end(0) - begun < 2 * first) break;
      const some = commands.slice(begun, begun + first);
      this.submit((encoder) => this.run(encoder, some, n, position + n));
      begun += first;
    }
    slice(0, begun);
    return Array.from({ length: slices - 1 }, (_, i) => () => {
      place();
      slice(i + 1);
    });
  }

  /**
   * Submits decode steps: each computes the newest tokens of some sequences and samples the next ones.
   * @param {object} options
   * @param {number[]} options.sequences @param {number[]} options.positions of their newest tokens
   * @param {number} options.steps
   * @param {string[]} options.lists of a step
   * @param {string[]} [options.first] lists of the first step, where they differ
   * @param {boolean} options.rows read log-probabilities back, too
   */
  decode({ sequences, positions, steps, lists, first = lists, rows }) {
    const places = sequences.map((seq, i) => ({ seq, position: positions[i] }));
    if (!equal(places, this.places)) this.place(places, places.length);
    this.places = places.map(({ seq, position }) => ({ seq, position: position + steps }));
    let map = () => {};
    this.submit((encoder) => {
      this.pass(encoder, [first, ...Array(steps - 1).fill(lists)], places.length, Math.max(...positions) + steps);
      const next = places.map(({ seq, position }) => ({ seq, position: position + 1 }));
      map = this.read(next, steps, rows, encoder);
    });
    map();
  }

  /** Runs lists on the newest tokens of sequences. @param {Place[]} places @param {string[]} lists @param {Forward} [encoded] perhaps for others */
  forward(places, lists, encoded) {
    if (!equal(places, this.places)) this.place(places, places.length);
    this.places = places;
    const isSame = equal(places, encoded?.places) && encoded?.changes === this.changes;
    this.submitEncoded(isSame ? encoded.buffer : this.encodeForward(places, lists).buffer);
  }

  /**
   * Encodes what forward() submits. The browser checks each command when it gets it, which takes as long as the kernels
   * of a small model: ahead of time, it can do so while it waits.
   * @param {Place[]} places @param {string[]} lists @returns {Forward}
   */
  encodeForward(places, lists) {
    const end = Math.max(...places.map(({ position }) => position)) + 1;
    const buffer = this.encoded((encoder) => this.pass(encoder, [lists], places.length, end));
    return { places, buffer, changes: this.changes };
  }

  /** Begins decoding with drafts: a step may yield several tokens of each sequence. @param {Place[]} places of their newest tokens */
  startDrafts(places) {
    this.place(places, places.length);
    this.places = undefined;
    this.drafted = { next: places.map(({ seq, position }) => ({ seq, position: position + 1 })), steps: 0, ends: [] };
    for (const { seq } of places) this.writeDrafting(seq, words(this.shared.draftingFields, { length: 2 }));
  }

  /** Writes the first words of a sequence's Drafting. @param {number} seq @param {number[]} values */
  writeDrafting(seq, values) {
    const { drafting } = this.buffers;
    if (drafting) this.device.queue.writeBuffer(drafting, this.draftingOffset(seq), new Uint32Array(values));
  }

  /** Byte offset of a sequence's Drafting. @param {number} seq */
  draftingOffset(seq) {
    return 4 * seq * this.shared.draftingFields.length;
  }

  /**
   * Submits steps of the sequences of startDrafts(). Returns false, and submits nothing, if they might compute positions
   * of a sequence from its end on: each may take as many positions in a step as the others leave of a small batch.
   * @param {object} options
   * @param {number} options.steps
   * @param {{ lists: string[], n: number }[]} options.step lists of a step, and the tokens of their batch
   * @param {number[]} options.ends of the sequences
   * @param {boolean} options.lookup drafts are prompt lookup's; else the lists of a draft model make them
   */
  draft({ steps, step, ends, lookup }) {
    const { maxSteps, shortBatch } = this.shared;
    const { next } = this.drafted;
    const count = (shortBatch - next.length + 1) * (this.drafted.steps + steps);
    if (count * next.length > maxSteps * shortBatch) return false;
    if (next.some(({ position }, i) => count > ends[i] - position)) return false;
    if (lookup)
      next.forEach(({ seq }, i) => ends[i] !== this.drafted.ends[i] && this.writeDrafting(seq, [ends[i] - 1]));
    this.drafted.ends = ends;
    this.drafted.steps += steps;
    let map = () => {};
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      for (let i = 0; i < steps; i++)
        for (const { lists, n } of step) for (const list of lists) this.encode(pass, list, n);
      pass.end();
      map = this.read(next, count, false, encoder, steps);
    });
    map();
    return true;
  }

  /**
   * @param {GPUCommandEncoder} encoder @param {string[][]} steps lists of each step @param {number} n tokens of the batch
   * @param {number} [end] the position after the last one that they compute
   */
  pass(encoder, steps, n, end) {
    this.run(encoder, this.commands(steps.flat()), n, end);
  }

  /** A buffer to read ids, States, and rows of log-probabilities or newest positions from. @param {boolean} withRows */
  staging(withRows) {
    const usage = GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ;
    const rowBytes = withRows ? (this.idBytes / 4) * this.shared.logprobRowBytes : 4 * this.shared.maxSmallBatch;
    const size = this.idBytes + this.statesBytes + rowBytes;
    let free = this.free.pop();
    if (free && free.size < size) free = void free.destroy();
    return free ?? this.device.createBuffer({ size, usage });
  }

  /**
   * Copies `count` tokens of each sequence, from its place on, into a staging buffer. Returns the function that maps it,
   * which must run after the submit.
   * @param {Place[]} places @param {number} count @param {boolean} rows @param {GPUCommandEncoder} encoder
   * @param {number} drafted steps with drafts; 0: none
   */
  read(places, count, rows, encoder, drafted = 0) {
    const staging = this.staging(rows);
    places.forEach((place, i) => {
      const bytes = 4 * Math.min(count, this.capacity - place.position);
      encoder.copyBufferToBuffer(this.buffers.tokens, this.tokenOffset(place), staging, 4 * i * count, bytes);
    });
    encoder.copyBufferToBuffer(this.buffers.state, 0, staging, this.idBytes, this.stateBytes * places.length);
    if (rows) places.forEach((place, i) => this.copyRows(encoder, place, count, staging, i * count));
    if (drafted) places.forEach(({ seq }, i) => this.copyNewest(encoder, seq, staging, i));
    const from = places.map(({ position }) => position);
    const { placed } = this;
    this.placed = false;
    return () => {
      const mapped = staging.mapAsync(GPUMapMode.READ);
      mapped.catch(() => {}); // result() reports it
      const submitted = performance.now();
      this.inFlight.push({ staging, count: places.length * count, from, rows, drafted, placed, submitted, mapped });
    };
  }

  /**
   * Copies the log-probabilities of `count` positions of a sequence to row `row` of a staging buffer's rows.
   * @param {GPUCommandEncoder} to @param {Place} place @param {number} count @param {GPUBuffer} into @param {number} row
   */
  copyRows(to, { seq, position }, count, into, row) {
    const { logprobs } = this.buffers;
    if (!logprobs) return;
    const { logprobRows, logprobRowBytes } = this.shared;
    const first = position % logprobRows;
    const straight = Math.min(count, logprobRows - first); // the other rows wrap around to the sequence's first row
    const at = this.idBytes + this.statesBytes + row * logprobRowBytes;
    const begin = seq * logprobRows * logprobRowBytes;
    to.copyBufferToBuffer(logprobs, begin + first * logprobRowBytes, into, at, straight * logprobRowBytes);
    if (straight === count) return;
    const rest = (count - straight) * logprobRowBytes;
    to.copyBufferToBuffer(logprobs, begin, into, at + straight * logprobRowBytes, rest);
  }

  /**
   * Copies the position of a drafting sequence's newest token to a staging buffer, in place of rows.
   * @param {GPUCommandEncoder} to @param {number} seq @param {GPUBuffer} into @param {number} i sequences before it
   */
  copyNewest(to, seq, into, i) {
    const newest = this.draftingOffset(seq) + 4 * this.shared.draftingFields.indexOf("newest");
    if (this.buffers.drafting)
      to.copyBufferToBuffer(this.buffers.drafting, newest, into, this.idBytes + this.statesBytes + 4 * i, 4);
  }

  /** Milliseconds until a result is due. @param {InFlight} oldest @param {number} takesMs @returns {number} */
  idleMs({ submitted }, takesMs) {
    return takesMs - (performance.now() - Math.max(this.last, submitted));
  }

  /**
   * The result of the oldest submit that reads back.
   * @param {number} expectedMs that it takes at least on the GPU; 0: not known
   * @param {number} share of that time, after which it is looked for
   * @returns {Promise<Result | undefined>} undefined when there is none
   */
  async result(expectedMs = 0, share = EXPECTED_SHARE) {
    const [oldest, next] = this.inFlight;
    if (!oldest) return undefined;
    const begun = performance.now();
    // Any later submit makes Chromium look; the next one after a slice of a prompt comes when that has run.
    const awaited = oldest.count === 1 || !next || next.count === 1;
    await (awaited ? this.soon(oldest.mapped, this.idleMs(oldest, share * expectedMs)) : oldest.mapped);
    const now = performance.now();
    this.counts.wait_ms += now - begun;
    this.inFlight.shift();
    const { staging, count, from, drafted, placed, submitted } = oldest;
    const { stateFields, logprobRowBytes } = this.shared;
    const read = new Uint32Array(staging.getMappedRange(0, this.idBytes));
    const states = new Uint32Array(staging.getMappedRange(this.idBytes, this.statesBytes));
    const rest = new Uint32Array(staging.getMappedRange(this.idBytes + this.statesBytes)); // rows or newest positions
    const { ids, counts } = drafted
      ? this.accepted(oldest, read, rest)
      : { ids: read.slice(0, count), counts: new Uint32Array() };
    const rejections = from.map((_, i) => states[stateFields.length * i + stateFields.indexOf("resampled")]);
    const resampled = rejections.map((now, i) => now !== (placed ? 0 : this.rejections[i]));
    this.rejections = rejections;
    const rows = oldest.rows ? rest.slice(0, (count * logprobRowBytes) / 4) : new Uint32Array();
    staging.unmap();
    this.free.push(staging);
    const queued = submitted < this.last;
    const ms = now - Math.max(this.last, submitted);
    this.last = now;
    return { ids, counts, rows, resampled, ms, queued };
  }

  /**
   * The ids that steps with drafts have yielded since the result before.
   * @param {InFlight} submit @param {Uint32Array} read ids of each sequence @param {Uint32Array} newest position of each
   */
  accepted({ count, from, drafted }, read, newest) {
    const { next, steps, ends } = this.drafted;
    const size = count / next.length;
    const parts = next.map(({ position }, i) => {
      const at = size * i - from[i];
      return read.subarray(at + position, at + newest[i] + 1);
    });
    this.drafted = { next: next.map(({ seq }, i) => ({ seq, position: newest[i] + 1 })), steps: steps - drafted, ends };
    return { ids: concatenated(parts), counts: Uint32Array.from(parts, (part) => part.length) };
  }

  /** Drops the results of all submits that are on the GPU. They run to their end. */
  drop() {
    for (const { mapped, staging } of this.inFlight) {
      mapped.then(() => {
        staging.unmap();
        this.free.push(staging);
      }, Object);
    }
    this.inFlight = [];
  }

  /** Runs lists over rows that are no tokens. @param {number} rows @param {string[]} lists */
  runRows(rows, lists) {
    this.place([{ seq: 0, position: 0 }], rows);
    this.places = undefined;
    this.submit((encoder) => this.pass(encoder, [lists], rows));
  }
}

/** @param {Uint32Array[]} parts */
const concatenated = (parts) => Uint32Array.from(parts.flatMap((part) => [...part]));

/** A struct's words in order; fields without a value are 0. @param {string[]} fields @param {Record<string, number>} values */
const words = (fields, values) => fields.map((field) => values[field] ?? 0);

/** @param {Place[]} a @param {Place[] | undefined} b */
const equal = (a, b) =>
  a.length === b?.length && a.every(({ seq, position }, i) => seq === b[i].seq && position === b[i].position);
