/**
 * Replays recorded command lists: everything that happens per token, so that Python is not asked per dispatch.
 *
 * A list is an array of commands made once (gpu.py). A batch of tokens is one command encoder, one compute pass and one
 * submit; the ids that the GPU chose are copied out of its token buffer and mapped some submits later, so that the GPU
 * never waits for us. Chromium looks for finished work only every 2 ms or so when nothing else reaches the GPU process.
 */

const MOST_STEPS = 64; // in a submit
const ID_BYTES = 4 * MOST_STEPS;
const LOGPROB_ROWS = 512; // rows of the buffer of log-probabilities: position % LOGPROB_ROWS; sampler_ops.py has them too
const ROW_BYTES = 21 * 8;

/**
 * @typedef {{ pipeline: GPUComputePipeline, group: GPUBindGroup, x: number, y: number, z: number,
 *   tile: number, axis: number }} Command  tile > 0: that axis' count is ceil(tokens / tile)
 * @typedef {{ ids: Uint32Array, rows: Uint32Array, resampled: number, ms: number }} Batch  ids the GPU chose, a row of
 *   log-probabilities for each where they are wanted, how often so far the mask made it choose again, milliseconds since
 *   the batch before
 */

export class Replay {
  /**
   * @param {GPUDevice} device @param {GPUBuffer} tokens u32 ids by position @param {GPUBuffer} state u32 pos, n, resampled
   * @param {GPUBuffer} logprobs rows of them by position % LOGPROB_ROWS
   */
  constructor(device, tokens, state, logprobs) {
    this.device = device;
    this.tokens = tokens;
    this.state = state;
    this.logprobs = logprobs;
    /** @type {Map<string, Command[]>} */
    this.lists = new Map();
    /** @type {GPUBuffer[]} */
    this.free = [];
    /** @type {{ staging: GPUBuffer, count: number, rows: boolean, mapped: Promise<void> }[]} batches on the GPU, oldest first */
    this.flying = [];
    this.position = 0; // where the next token that is submitted will be written
    this.left = 0; // tokens that may still be submitted
    /** @type {string[]} */
    this.samplers = ["sample"]; // the lists that choose a token from logits
    this.withRows = false; // read log-probabilities back, too
    this.owed = false; // whether the last token has not gone through the layers
    this.steps = 1; // tokens in a submit
    this.ahead = 2; // submits on the GPU before the oldest is awaited
    this.since = 0;
    this.batches = 0; // handed out since start()
    this.warm = false; // whether the last batch's time is that of its steps: the pipeline of submits was full
    this.counts = { submits: 0, dispatches: 0, encode_ms: 0, wait_ms: 0 };
  }

  /**
   * @param {string} list @param {GPUComputePipeline} pipeline @param {GPUBindGroup} group
   * @param {number} x @param {number} y @param {number} z @param {number} tile @param {number} axis
   */
  add(list, pipeline, group, x, y, z, tile, axis) {
    if (!this.lists.has(list)) this.lists.set(list, []);
    this.lists.get(list)?.push({ pipeline, group, x, y, z, tile, axis });
  }

  /** @param {GPUComputePassEncoder} pass @param {string} list @param {number} n tokens in the batch */
  encode(pass, list, n) {
    const commands = this.lists.get(list) ?? [];
    for (const command of commands) dispatch(pass, command, n);
    this.counts.dispatches += commands.length;
  }

  /** @param {(encoder: GPUCommandEncoder) => void} fill */
  submit(fill) {
    const begun = performance.now();
    const encoder = this.device.createCommandEncoder();
    fill(encoder);
    this.device.queue.submit([encoder.finish()]);
    this.counts.submits += 1;
    this.counts.encode_ms += performance.now() - begun;
  }

  /**
   * Puts tokens at their positions and runs lists over them in one pass.
   * @param {number} position @param {Uint32Array} ids @param {string[]} lists
   */
  feed(position, ids, lists) {
    if (this.owed) this.forward();
    this.device.queue.writeBuffer(this.tokens, 4 * position, ids);
    this.device.queue.writeBuffer(this.state, 0, new Uint32Array([position, ids.length]));
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      for (const list of lists) this.encode(pass, list, ids.length);
      pass.end();
    });
  }

  /**
   * From here on tokens are generated, the first at `position`. What feed() submitted computes its logits and,
   * `chosen`, chooses it.
   * @param {number} position @param {number} count tokens at most, with that one @param {number} steps @param {number} ahead
   * @param {boolean} chosen
   */
  start(position, count, steps, ahead, chosen) {
    Object.assign(this, { position, left: count, steps, ahead, since: performance.now(), warm: false, batches: 0 });
    this.owed = chosen;
    if (chosen) this.read(1);
  }

  /** Copies the next `count` tokens of the GPU's buffer out, in a submit of their own or behind a pass. @param {number} count @param {GPUCommandEncoder} [encoder] */
  read(count, encoder) {
    const usage = GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ;
    const size = ID_BYTES + 16 + (this.withRows ? MOST_STEPS * ROW_BYTES : 0);
    let staging = this.free.pop();
    if (staging && staging.size < size) staging = void staging.destroy();
    const into = staging ?? this.device.createBuffer({ size, usage });
    const { position } = this;
    /** @param {GPUCommandEncoder} to */
    const copy = (to) => {
      to.copyBufferToBuffer(this.tokens, 4 * position, into, 0, 4 * count);
      to.copyBufferToBuffer(this.state, 0, into, ID_BYTES, 16);
      if (this.withRows) this.copyRows(to, position, count, into);
    };
    if (encoder) copy(encoder);
    else this.submit(copy);
    this.position += count;
    this.left -= count;
    return this.fly(into, count, !encoder);
  }

  /** @param {GPUCommandEncoder} to @param {number} position @param {number} count @param {GPUBuffer} into */
  copyRows(to, position, count, into) {
    const first = position % LOGPROB_ROWS;
    const straight = Math.min(count, LOGPROB_ROWS - first); // the others begin at the buffer's start
    const at = ID_BYTES + 16;
    to.copyBufferToBuffer(this.logprobs, first * ROW_BYTES, into, at, straight * ROW_BYTES);
    if (straight === count) return;
    to.copyBufferToBuffer(this.logprobs, 0, into, at + straight * ROW_BYTES, (count - straight) * ROW_BYTES);
  }

  /** @param {GPUBuffer} staging @param {number} count @param {boolean} submitted */
  fly(staging, count, submitted) {
    const batch = { staging, count, rows: this.withRows, mapped: Promise.resolve() };
    const map = () => {
      batch.mapped = staging.mapAsync(GPUMapMode.READ);
      batch.mapped.catch(() => {}); // take() reports it
      this.flying.push(batch);
    };
    if (submitted) map();
    return map;
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
        if (this.owed) this.encode(pass, "decode", 1);
        for (const list of this.samplers) this.encode(pass, list, 1);
        this.owed = true;
      }
      pass.end();
      map = this.read(count, encoder);
    });
    map();
    if (eager && this.left > 0) this.forward(); // at the end there may be no room
    return count;
  }

  /** The last token through the layers, and its logits. */
  forward() {
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      this.encode(pass, "decode", 1);
      pass.end();
    });
    this.owed = false;
  }

  /** The next tokens, after handing the GPU enough to go on with. @returns {Promise<Batch | undefined>} undefined at the end */
  async next() {
    while (this.left > 0 && this.flying.length <= this.ahead) this.step();
    return this.take();
  }

  /** The tokens of the oldest submit. @returns {Promise<Batch | undefined>} undefined when there is none */
  async take() {
    const batch = this.flying.shift();
    if (!batch) return undefined;
    const begun = performance.now();
    await batch.mapped;
    this.counts.wait_ms += performance.now() - begun;
    const { staging, count } = batch;
    const ids = new Uint32Array(staging.getMappedRange(0, ID_BYTES)).slice(0, count);
    const rest = new Uint32Array(staging.getMappedRange(ID_BYTES));
    const resampled = rest[2];
    const rows = batch.rows ? rest.slice(4, 4 + (count * ROW_BYTES) / 4) : new Uint32Array();
    staging.unmap();
    this.free.push(staging);
    const now = performance.now();
    const ms = now - this.since;
    this.since = now;
    this.batches += 1;
    this.warm = this.batches > this.ahead + 2;
    return { ids, rows, resampled, ms };
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
    Object.assign(this, { position, left: count });
    this.device.queue.writeBuffer(this.state, 0, new Uint32Array([position - 1, 1]));
    this.forward();
  }

  /** Ends generation: what is on the GPU finishes and is dropped. */
  async stop() {
    this.left = 0;
    this.owed = false;
    while (this.flying.length) await this.take();
  }

  /** A buffer's bytes, read back. @param {GPUBuffer} buffer @param {number} offset @param {number} size multiple of 4 */
  async download(buffer, offset, size) {
    const staging = this.device.createBuffer({ size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
    this.submit((encoder) => encoder.copyBufferToBuffer(buffer, offset, staging, 0, size));
    await staging.mapAsync(GPUMapMode.READ);
    const data = staging.getMappedRange().slice(0);
    staging.destroy();
    return data;
  }

  /**
   * GPU time of each command of a list, in nanoseconds: `repeats` dispatches of it in a pass of its own.
   * @param {string} list @param {number} n @param {number} repeats @returns {Promise<number[]>}
   */
  async profile(list, n, repeats) {
    const commands = this.lists.get(list) ?? [];
    const out = [];
    for (const command of commands) out.push(await this.timed([command], n, repeats));
    return out;
  }

  /** GPU time of lists, one command after the other, in nanoseconds. @param {string[]} lists @param {number} n @param {number} repeats */
  timeLists(lists, n, repeats) {
    return this.timed(
      lists.flatMap((list) => this.lists.get(list) ?? []),
      n,
      repeats,
    );
  }

  /** @param {Command[]} commands @param {number} n @param {number} repeats @returns {Promise<number>} */
  async timed(commands, n, repeats) {
    if (!this.device.features.has("timestamp-query")) return this.timedByTheClock(commands, n, repeats);
    const queries = this.device.createQuerySet({ type: "timestamp", count: 2 });
    const times = this.device.createBuffer({ size: 16, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
    this.submit((encoder) => {
      const timestampWrites = { querySet: queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 };
      const pass = encoder.beginComputePass({ timestampWrites });
      for (let i = 0; i < repeats; i++) for (const command of commands) dispatch(pass, command, n);
      pass.end();
      encoder.resolveQuerySet(queries, 0, 2, times, 0);
    });
    const [start, end] = new BigUint64Array(await this.download(times, 0, 16));
    queries.destroy();
    times.destroy();
    return Number(end - start) / repeats;
  }

  /** @param {Command[]} commands @param {number} n @param {number} repeats @returns {Promise<number>} */
  async timedByTheClock(commands, n, repeats) {
    await this.device.queue.onSubmittedWorkDone();
    const begun = performance.now();
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      for (let i = 0; i < repeats; i++) for (const command of commands) dispatch(pass, command, n);
      pass.end();
    });
    await this.device.queue.onSubmittedWorkDone();
    return (1e6 * (performance.now() - begun)) / repeats;
  }
}

/** @param {GPUComputePassEncoder} pass @param {Command} command @param {number} n tokens in the batch */
function dispatch(pass, { pipeline, group, x, y, z, tile, axis }, n) {
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  const count = tile && Math.ceil(n / tile);
  pass.dispatchWorkgroups(
    tile && axis === 0 ? count : x,
    tile && axis === 1 ? count : y,
    tile && axis === 2 ? count : z,
  );
}
