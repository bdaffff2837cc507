/**
 * Recorded command lists: arrays of commands made once (gpu.py), encoded by name, and timed.
 *
 * @typedef {{ pipeline: GPUComputePipeline, group: GPUBindGroup, x: number, y: number, z: number,
 *   tile: number, axis: number }} Command  tile > 0: that axis' count is ceil(tokens / tile)
 */

export class Lists {
  /** @param {GPUDevice} device */
  constructor(device) {
    this.device = device;
    /** @type {Map<string, Command[]>} */
    this.lists = new Map();
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
