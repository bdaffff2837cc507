/**
 * Replays recorded command lists: everything that happens per token, so that Python is not asked per dispatch.
 *
 * A list is an array of commands made once (gpu.py). A batch of tokens is one command encoder, one compute pass and one
 * submit; the ids that the GPU chose are copied out of its token buffer and mapped some submits later, so that the GPU
 * never waits for us. Chromium looks for finished work only every 2 ms or so when nothing else reaches the GPU process.
 */

/**
 * @typedef {{ pipeline: GPUComputePipeline, group: GPUBindGroup, x: number, y: number, z: number,
 *   tile: number, axis: number }} Command  tile > 0: that axis' count is ceil(tokens / tile)
 * @typedef {{ ids: Uint32Array, ms: number }} Batch  ids the GPU chose, milliseconds since the batch before
 */

export class Replay {
  /** @param {GPUDevice} device @param {GPUBuffer} tokens u32 ids by position @param {GPUBuffer} state u32 pos, n */
  constructor(device, tokens, state) {
    this.device = device;
    this.tokens = tokens;
    this.state = state;
    /** @type {Map<string, Command[]>} */
    this.lists = new Map();
    /** @type {GPUBuffer[]} */
    this.free = [];
    /** @type {{ staging: GPUBuffer, count: number, mapped: Promise<void> }[]} batches on the GPU, oldest first */
    this.flying = [];
    this.position = 0; // where the next token that is submitted will be written
    this.left = 0; // tokens that may still be submitted
    this.steps = 1; // tokens in a submit
    this.ahead = 2; // submits on the GPU before the oldest is awaited
    this.since = 0;
    this.batches = 0; // handed out since start()
    this.warm = false; // whether the last batch's time is that of its steps: the pipeline of submits was full
    this.counts = { submits: 0, dispatches: 0 };
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
    const encoder = this.device.createCommandEncoder();
    fill(encoder);
    this.device.queue.submit([encoder.finish()]);
    this.counts.submits += 1;
  }

  /**
   * Puts tokens at their positions and runs lists over them in one pass.
   * @param {number} position @param {Uint32Array} ids @param {string[]} lists
   */
  feed(position, ids, lists) {
    this.device.queue.writeBuffer(this.tokens, 4 * position, ids);
    this.device.queue.writeBuffer(this.state, 0, new Uint32Array([position, ids.length]));
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      for (const list of lists) this.encode(pass, list, ids.length);
      pass.end();
    });
  }

  /**
   * From here on tokens are generated: the one at `position` is being computed by what feed() submitted.
   * @param {number} position @param {number} count tokens at most, with that one @param {number} steps @param {number} ahead
   */
  start(position, count, steps, ahead) {
    Object.assign(this, { position, left: count, steps, ahead, since: performance.now(), warm: false, batches: 0 });
    this.read(1); // the first comes out of the prompt's last batch
  }

  /** Copies the next `count` tokens of the GPU's buffer out, in a submit of their own or behind a pass. @param {number} count @param {GPUCommandEncoder} [encoder] */
  read(count, encoder) {
    const size = 256;
    const staging =
      this.free.pop() ?? this.device.createBuffer({ size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
    /** @param {GPUCommandEncoder} into */
    const copy = (into) => into.copyBufferToBuffer(this.tokens, 4 * this.position, staging, 0, 4 * count);
    if (encoder) copy(encoder);
    else this.submit(copy);
    this.position += count;
    this.left -= count;
    return this.fly(staging, count, !encoder);
  }

  /** @param {GPUBuffer} staging @param {number} count @param {boolean} submitted */
  fly(staging, count, submitted) {
    const batch = { staging, count, mapped: Promise.resolve() };
    const map = () => {
      batch.mapped = staging.mapAsync(GPUMapMode.READ, 0, 4 * count);
      batch.mapped.catch(() => {}); // next() reports it
      this.flying.push(batch);
    };
    if (submitted) map();
    return map;
  }

  /** One submit of up to `steps` decode steps. */
  step() {
    const count = Math.min(this.steps, this.left, 64);
    let map = () => {};
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      for (let i = 0; i < count; i++) this.encode(pass, "decode", 1);
      pass.end();
      map = this.read(count, encoder);
    });
    map();
  }

  /** The next tokens, after handing the GPU enough to go on with. @returns {Promise<Batch | undefined>} undefined at the end */
  async next() {
    while (this.left > 0 && this.flying.length <= this.ahead) this.step();
    const batch = this.flying.shift();
    if (!batch) return undefined;
    await batch.mapped;
    const ids = new Uint32Array(batch.staging.getMappedRange(0, 4 * batch.count)).slice();
    batch.staging.unmap();
    this.free.push(batch.staging);
    const now = performance.now();
    const ms = now - this.since;
    this.since = now;
    this.batches += 1;
    this.warm = this.batches > this.ahead + 2;
    return { ids, ms };
  }

  /** Ends generation: what is on the GPU finishes and is dropped. */
  async stop() {
    this.left = 0;
    while (this.flying.length) await this.next();
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
    const queries = this.device.createQuerySet({ type: "timestamp", count: 2 });
    const times = this.device.createBuffer({ size: 16, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
    const out = [];
    for (const command of commands) {
      this.submit((encoder) => {
        const timestampWrites = { querySet: queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 };
        const pass = encoder.beginComputePass({ timestampWrites });
        for (let i = 0; i < repeats; i++) dispatch(pass, command, n);
        pass.end();
        encoder.resolveQuerySet(queries, 0, 2, times, 0);
      });
      const [start, end] = new BigUint64Array(await this.download(times, 0, 16));
      out.push(Number(end - start) / repeats);
    }
    queries.destroy();
    times.destroy();
    return out;
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
