/**
 * Recorded command lists: arrays of dispatches that gpu.py creates once. Encodes, submits and times them by name.
 *
 * @typedef {object} Command  one dispatch
 * @property {GPUComputePipeline} pipeline
 * @property {GPUBindGroupDescriptor} bindings @property {GPUBindGroup} [group] made of them
 * @property {number} x @property {number} y @property {number} z workgroups
 * @property {number} tile if not 0, ceil(tokens / tile) workgroups are added along `axis`
 * @property {number} axis 0: x, 1: y, 2: z
 * @property {number} positions if not 0, each workgroup along y has so many positions; those after `end` are not dispatched
 * @property {number} above it runs only if `end`, the longest context, is above this
 * @property {number} upTo if not 0, it runs only if `end` is not above this
 * @property {boolean} orUnknown it also runs if `end` is not known
 */

const PROBE_EVERY_MS = 0.1; // while a result is due
const SELDOM_MS = 4; // otherwise
const SHORT_MS = 2; // waits that a timer would make too long

export const EXPECTED_SHARE = 0.8; // of the time that a submit should take, before its result is looked for
const READERS = 2; // buffers for rows that are read back, at most: to make one takes as long as to read it

export class Lists {
  /** @param {GPUDevice} device @param {number} probeMs how long soon() sends empty submits; 0: never */
  constructor(device, probeMs) {
    this.device = device;
    this.probeMs = probeMs;
    /** @type {Map<string, Command[]>} */
    this.lists = new Map();
    /** @type {GPUBuffer[]} for reuse */
    this.readers = [];
    this.counts = { submits: 0, dispatches: 0, encode_ms: 0, wait_ms: 0 };
    this.changes = 0; // of the lists; commands that were encoded before one may use destroyed buffers
  }

  /** Appends a command to a list, and makes its bind group. @param {string} list @param {Command} command */
  add(list, command) {
    command.group = this.device.createBindGroup(command.bindings);
    if (!this.lists.has(list)) this.lists.set(list, []);
    this.lists.get(list)?.push(command);
    this.changes++;
  }

  /**
   * Binds other buffers in all commands. In Python, that would take as long as many steps.
   * @param {[GPUBuffer, GPUBuffer, number][]} moved an old buffer, the one that takes its place, and its bytes
   */
  bindAgain(moved) {
    const larger = new Map(moved.map(([old, buffer, size]) => [old, { buffer, offset: 0, size }]));
    for (const command of [...this.lists.values()].flat()) {
      const entries = /** @type {{ binding: number, resource: GPUBufferBinding }[]} */ ([...command.bindings.entries]);
      if (!entries.some(({ resource }) => larger.has(resource.buffer))) continue;
      const now = entries.map(({ binding, resource }) => ({
        binding,
        resource: larger.get(resource.buffer) ?? resource,
      }));
      command.bindings = { layout: command.bindings.layout, entries: now };
      command.group = this.device.createBindGroup(command.bindings);
    }
    this.changes++;
  }

  /** Encodes a list for a batch of n tokens. @param {GPUComputePassEncoder} pass @param {string} list @param {number} n */
  encode(pass, list, n) {
    this.dispatchAll(pass, this.lists.get(list) ?? [], n);
  }

  /** The commands of lists that run one after the other. @param {string[]} lists */
  commands(lists) {
    return lists.flatMap((list) => this.lists.get(list) ?? []);
  }

  /**
   * Encodes commands for a batch of n tokens as a pass.
   * @param {GPUCommandEncoder} encoder @param {Command[]} commands @param {number} n
   * @param {number} [end] the position after the last one that any of them computes
   */
  run(encoder, commands, n, end) {
    const pass = encoder.beginComputePass();
    this.dispatchAll(pass, commands, n, end);
    pass.end();
  }

  /**
   * Encodes commands for a batch of n tokens. `end`: the position after the last one; Infinity if it is not known.
   * @param {GPUComputePassEncoder} pass @param {Command[]} commands @param {number} n @param {number} [end]
   */
  dispatchAll(pass, commands, n, end = Infinity) {
    for (const command of commands) {
      if (!runs(command, end)) continue;
      dispatch(pass, command, n, end);
      this.counts.dispatches += 1;
    }
  }

  /** Submits what `fill` encodes. @param {(encoder: GPUCommandEncoder) => void} fill */
  submit(fill) {
    this.submitEncoded(this.encoded(fill));
  }

  /** What `fill` encodes, to be submitted once. @param {(encoder: GPUCommandEncoder) => void} fill */
  encoded(fill) {
    const begun = performance.now();
    const encoder = this.device.createCommandEncoder();
    fill(encoder);
    const buffer = encoder.finish();
    this.counts.encode_ms += performance.now() - begun;
    return buffer;
  }

  /** @param {GPUCommandBuffer} buffer */
  submitEncoded(buffer) {
    const begun = performance.now();
    this.device.queue.submit([buffer]);
    this.counts.submits += 1;
    this.counts.encode_ms += performance.now() - begun;
  }

  /** Sends the browser what was encoded but not submitted, and has it look for results. */
  flush() {
    if (this.probeMs) this.device.queue.submit([]);
  }

  /**
   * Awaits the mapping of a buffer. Chromium looks for finished work only every few milliseconds while nothing reaches its
   * GPU process, so empty submits are sent. They slow down what runs, and the encoding of what was submitted: so they are
   * frequent only for a while after the result is due.
   * @param {Promise<void>} mapping @param {number} idleMs until it is due
   */
  async soon(mapping, idleMs = 0) {
    let pending = true;
    const end = () => (pending = false);
    mapping.then(end, end);
    const begun = performance.now();
    let last = begun;
    while (pending && this.probeMs) {
      const now = performance.now();
      const late = now - begun - idleMs; // below 0: early
      const due = late >= 0 && late < this.probeMs;
      if (now - last > (due ? PROBE_EVERY_MS : SELDOM_MS)) {
        this.flush();
        last = now;
      }
      await (due || (late < 0 && idleMs < SHORT_MS)
        ? nextTask()
        : Promise.race([mapping, after(late < 0 ? Math.min(-late, SELDOM_MS) : SELDOM_MS)]));
    }
    await mapping;
  }

  /** Reads bytes of a buffer back. @param {GPUBuffer} buffer @param {number} offset @param {number} size a multiple of 4 */
  async download(buffer, offset, size) {
    const staging = this.device.createBuffer({ size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
    this.submit((encoder) => encoder.copyBufferToBuffer(buffer, offset, staging, 0, size));
    await this.soon(staging.mapAsync(GPUMapMode.READ));
    const data = staging.getMappedRange().slice(0);
    staging.destroy();
    return data;
  }

  /**
   * Runs lists over rows of a buffer and reads `width` floats of each. Submits before it returns.
   * @param {number} rows @param {string[]} lists
   * @param {{ buffer: GPUBuffer, offset: number, pitch: number, width: number }} place pitch: floats from row to row
   * @param {number} expectedMs that all submits so far take; below 0: the result is not looked for, only waited for
   * @returns {Promise<Float32Array>} (rows, width)
   */
  async pooled(rows, lists, { buffer, offset, pitch, width }, expectedMs = rows === 1 ? 0 : -1) {
    const size = 4 * pitch * rows;
    const staging = this.reader(size);
    this.submit((encoder) => {
      if (lists.length) this.run(encoder, this.commands(lists), rows);
      encoder.copyBufferToBuffer(buffer, offset, staging, 0, size);
    });
    const begun = performance.now();
    try {
      const mapping = staging.mapAsync(GPUMapMode.READ, 0, size);
      // Of a long wait, the end is looked for from half of probeMs before to half of it after the expected time.
      const idleMs = Math.max(EXPECTED_SHARE * expectedMs, expectedMs - this.probeMs / 2);
      await (expectedMs < 0 ? mapping : this.soon(mapping, idleMs));
      this.counts.wait_ms += performance.now() - begun;
      const padded = new Float32Array(staging.getMappedRange(0, size));
      if (pitch === width) return padded.slice();
      const out = new Float32Array(rows * width);
      for (let i = 0; i < rows; i++) out.set(padded.subarray(i * pitch, i * pitch + width), i * width);
      return out;
    } finally {
      staging.unmap();
      if (this.readers.length < READERS) this.readers.push(staging);
      else staging.destroy();
    }
  }

  /** A buffer that `size` bytes can be read from. @param {number} size */
  reader(size) {
    const free = this.readers.pop();
    if (free && free.size >= size) return free;
    free?.destroy();
    return this.device.createBuffer({ size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
  }

  /**
   * Times each command that a list has for contexts up to `end`, in nanoseconds per dispatch: `repeats` dispatches in a
   * pass of their own.
   * @param {string} list @param {number} n @param {number} repeats @param {number} end @returns {Promise<number[]>}
   */
  async profile(list, n, repeats, end) {
    const commands = (this.lists.get(list) ?? []).filter((command) => runs(command, end));
    const out = [];
    for (const command of commands) out.push(await this.timed([command], n, repeats, end));
    return out;
  }

  /** Times lists run one after the other, in nanoseconds. @param {string[]} lists @param {number} n @param {number} repeats @param {number} end */
  timeLists(lists, n, repeats, end) {
    return this.timed(this.commands(lists), n, repeats, end);
  }

  /** Mean nanoseconds of one run of the commands. @param {Command[]} commands @param {number} n @param {number} repeats @param {number} [end] @returns {Promise<number>} */
  async timed(commands, n, repeats, end) {
    if (!this.device.features.has("timestamp-query")) return this.timedByClock(commands, n, repeats, end);
    const queries = this.device.createQuerySet({ type: "timestamp", count: 2 });
    const times = this.device.createBuffer({ size: 16, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
    this.submit((encoder) => {
      const timestampWrites = { querySet: queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 };
      const pass = encoder.beginComputePass({ timestampWrites });
      for (let i = 0; i < repeats; i++) this.dispatchAll(pass, commands, n, end);
      pass.end();
      encoder.resolveQuerySet(queries, 0, 2, times, 0);
    });
    const [begun, ended] = new BigUint64Array(await this.download(times, 0, 16));
    queries.destroy();
    times.destroy();
    return Number(ended - begun) / repeats;
  }

  /** timed() without timestamp queries, by the host's clock. @param {Command[]} commands @param {number} n @param {number} repeats @param {number} [end] @returns {Promise<number>} */
  async timedByClock(commands, n, repeats, end) {
    await this.device.queue.onSubmittedWorkDone();
    const begun = performance.now();
    this.submit((encoder) => {
      const pass = encoder.beginComputePass();
      for (let i = 0; i < repeats; i++) this.dispatchAll(pass, commands, n, end);
      pass.end();
    });
    await this.device.queue.onSubmittedWorkDone();
    return (1e6 * (performance.now() - begun)) / repeats;
  }
}

/** Lets other tasks of this worker run first, such as the end of a mapping; takes some 0.02 ms. */
function nextTask() {
  return /** @type {Promise<void>} */ (
    new Promise((resolve) => {
      waiting.push(resolve);
      tasks.port2.postMessage(null);
    })
  );
}
/** Waits. Timers of browsers take 4 ms at least where one follows another; a wait for a word to change does not. @param {number} ms @returns {Promise<unknown>} */
function after(ms) {
  if (!unchanging) return new Promise((done) => setTimeout(done, ms));
  return Promise.resolve(Atomics.waitAsync(unchanging, 0, 0, ms).value);
}
const unchanging =
  globalThis.crossOriginIsolated && "waitAsync" in Atomics ? new Int32Array(new SharedArrayBuffer(4)) : undefined;
const tasks = new MessageChannel();
/** @type {(() => void)[]} */
const waiting = [];
tasks.port1.onmessage = () => waiting.shift()?.();

/** Whether a command belongs to contexts of up to `end` positions. @param {Command} command @param {number} end */
function runs({ above, upTo, orUnknown }, end) {
  if (end === Infinity && orUnknown) return true;
  return end > above && (!upTo || end <= upTo);
}

/**
 * @param {GPUComputePassEncoder} pass @param {Command} command @param {number} n tokens in the batch
 * @param {number} end the position after the last one that it computes
 */
function dispatch(pass, { pipeline, group, x, y, z, tile, axis, positions }, n, end) {
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, group);
  const more = tile && Math.ceil(n / tile);
  const rows = positions ? Math.min(y, Math.ceil(end / positions)) : y + (axis === 1 ? more : 0);
  pass.dispatchWorkgroups(x + (axis === 0 ? more : 0), rows, z + (axis === 2 ? more : 0));
}
