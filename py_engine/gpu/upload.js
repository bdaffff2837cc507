/**
 * Uploads weights to the GPU. A record is read into mapped staging memory, the GPU copies it to the buffer `raw`, and from
 * there to its weights' buffers: unchanged, or through a repack kernel. upload.py computes these commands.
 *
 * writeBuffer would allocate new memory for each record. The first write to new memory costs more than the copy.
 */

import { checksum } from "../files/checksum.js";

const PAD = 256; // bytes after a record in `raw` that a kernel may read
const REPORT_MS = 50; // between two reports of a stream's progress
const CHUNK = 1 << 20; // bytes of one read, about the size of a browser's pipe
const TIMEOUT_MS = 30_000; // a read that takes longer fails; Source.records() then reads the record

/**
 * @typedef {object} Options
 * @property {number} maxRecord bytes of the largest record
 * @property {number} slots records that are read or uploaded at a time
 * @property {string[]} copyFields names of a Copy's numbers, in order
 * @property {string[]} dispatchFields names of a Dispatch's numbers, in order
 *
 * @typedef {object} Copy  bytes that stay unchanged
 * @property {number} source byte in the record
 * @property {number} buffer index of the target @property {number} target byte in it
 * @property {number} size bytes
 *
 * @typedef {object} Dispatch  one dispatch of a kernel that reads `raw`
 * @property {number} pipeline index
 * @property {number} buffer index of the buffer it writes @property {number} offset byte in it @property {number} size bytes
 * @property {number} params byte in Commands.params @property {number} params_size bytes
 * @property {number} x @property {number} y workgroups
 *
 * @typedef {object} Commands  what to do with a record
 * @property {Float64Array} copies numbers of each Copy
 * @property {Float64Array} dispatches numbers of each Dispatch
 * @property {Uint8Array} params uniforms of the dispatches
 *
 * @typedef {{ buffer: GPUBuffer, memory: Uint8Array<ArrayBuffer> }} Slot  a mapped staging buffer
 * @typedef {{ data: Blob, check?: number[] }} CachedRecord  a record on a disk, and its checksum if it has one
 */

export class Upload {
  #device;
  #options;
  #raw;
  /** @type {GPUBuffer[]} */
  #slots;
  /** @type {Promise<Slot>[]} the staging buffers, in the order in which they become free */
  #free;
  /** @type {GPUComputePipeline[]} */
  #pipelines = [];
  /** @type {GPUBuffer[]} */
  #buffers = [];
  /** @type {Promise<Commands>[]} of each record of a stream */
  #commands = [];
  /** @type {((commands: Commands) => void)[]} resolve those of #commands that are still missing */
  #resolvers = [];
  #closed = false;
  written_ms = 0; // spent on handing records of streams to the GPU

  /** @param {GPUDevice} device @param {Options} options */
  constructor(device, options) {
    const { COPY_DST, COPY_SRC, MAP_WRITE, STORAGE } = GPUBufferUsage;
    const usage = MAP_WRITE | COPY_SRC;
    const size = options.maxRecord;
    this.#device = device;
    this.#options = options;
    this.#raw = device.createBuffer({ label: "raw", size: size + PAD, usage: STORAGE | COPY_DST | COPY_SRC });
    this.#slots = Array.from({ length: options.slots }, () =>
      device.createBuffer({ label: "staging", size, usage, mappedAtCreation: true }),
    );
    this.#free = this.#slots.map((buffer) => Promise.resolve(mapped(buffer)));
  }

  /** @param {GPUComputePipeline} pipeline @returns {number} its index in a Dispatch */
  addPipeline = (pipeline) => this.#pipelines.push(pipeline) - 1;

  /** @param {GPUBuffer} buffer @returns {number} its index in a Copy or Dispatch */
  addBuffer = (buffer) => this.#buffers.push(buffer) - 1;

  /**
   * Uploads one record: waits for staging memory and submits the commands. On return `data` may be freed; GPU work may
   * still be pending.
   * @param {ArrayBuffer} data @param {Float64Array} copies @param {Float64Array} dispatches @param {Uint8Array} params
   */
  async write(data, copies, dispatches, params) {
    const slot = await this.#nextSlot();
    slot.memory.set(new Uint8Array(data));
    this.#submit(slot, data.byteLength, { copies, dispatches, params });
  }

  /**
   * Begins to read `count` records, several at a time, and uploads each once addCommands() has given its commands.
   * @param {(i: number) => Promise<CachedRecord | undefined>} open
   * @param {number} count
   * @param {boolean} checkHere compute checksums on the CPU; else dispatches compute them
   * @param {(records: number) => void} onProgress called at most every REPORT_MS with the number of records read
   * @returns {{ sums: number, done: Promise<{ failed: number[], read_ms: number }> }} the index of the buffer of
   *   checksums; the records that could not be read or whose checksum differs, and the time of reading
   */
  stream(open, count, checkHere, onProgress) {
    const { COPY_SRC, STORAGE } = GPUBufferUsage;
    const size = 8 * Math.max(1, count); // two u32 per record
    const sums = this.#device.createBuffer({ label: "checksums", size, usage: STORAGE | COPY_SRC });
    this.#resolvers = [];
    this.#commands = Array.from({ length: count }, () => new Promise((resolve) => this.#resolvers.push(resolve)));
    const done = this.#run(open, count, checkHere ? undefined : sums, onProgress).finally(() => sums.destroy());
    done.catch(() => undefined); // reported to the caller that awaits it
    return { sums: this.addBuffer(sums), done };
  }

  /** Gives the commands of a stream's next record. @type {(copies: Float64Array, dispatches: Float64Array, params: Uint8Array) => void} */
  addCommands = (copies, dispatches, params) => this.#resolvers.shift()?.({ copies, dispatches, params });

  /**
   * @param {(i: number) => Promise<CachedRecord | undefined>} open @param {number} count
   * @param {GPUBuffer | undefined} sums where dispatches write the checksums
   * @param {(records: number) => void} onProgress
   */
  async #run(open, count, sums, onProgress) {
    /** @type {Promise<{ slot: Slot, record: CachedRecord | undefined, ms: number }>[]} */
    const reads = [];
    /** @type {(CachedRecord | undefined)[]} */
    const records = [];
    let read_ms = 0;
    let reported = performance.now();
    for (let i = 0, next = 0; i < count; i++) {
      for (; next < count && reads.length < this.#slots.length; next++) {
        const read = this.#read(open(next), !sums);
        read.catch(() => undefined); // reported when it is awaited
        reads.push(read);
      }
      const { slot, record, ms } = await /** @type {typeof reads[0]} */ (reads.shift());
      const commands = await this.#commands[i];
      const begun = performance.now();
      if (record) this.#submit(slot, record.data.size, commands);
      else this.#free.push(Promise.resolve(slot));
      records.push(record);
      read_ms += ms;
      const now = performance.now();
      this.written_ms += now - begun;
      if (now - reported > REPORT_MS) {
        onProgress(i + 1);
        reported = now;
      }
    }
    const found = count && sums ? await this.#download(sums, 8 * count) : undefined;
    const matches = (/** @type {CachedRecord} */ { check }, /** @type {number} */ i) =>
      !check || !found || (check[0] === found[2 * i] && check[1] === found[2 * i + 1]);
    return { failed: records.flatMap((record, i) => (record && matches(record, i) ? [] : [i])), read_ms };
  }

  /**
   * Reads a record into the next staging buffer. `record` is undefined if it could not be read or is damaged.
   * @param {Promise<CachedRecord | undefined>} opening @param {boolean} checks whether to compare its checksum
   */
  async #read(opening, checks) {
    opening.catch(() => undefined); // handled below
    const slot = await this.#nextSlot();
    const begun = performance.now();
    const record = await opening.catch(() => undefined);
    const whole = record && (await fill(slot.memory, record.data).catch(() => false));
    if (this.#closed) throw new Error("The upload was closed.");
    const ms = performance.now() - begun;
    const damaged =
      checks &&
      whole &&
      record.check &&
      String(checksum(slot.memory.buffer, record.data.size)) !== String(record.check);
    return { slot, record: whole && !damaged ? record : undefined, ms };
  }

  async #nextSlot() {
    return /** @type {Promise<Slot>} */ (this.#free.shift());
  }

  /** @param {Slot} slot @param {number} size bytes of the record @param {Commands} commands */
  #submit({ buffer: staging, memory }, size, { copies, dispatches, params }) {
    const { queue } = this.#device;
    /** @type {Copy[]} */
    const all = rows(copies, this.#options.copyFields);
    for (const { source, buffer, target, size } of all) {
      // copyBufferToBuffer needs multiples of 4: tensors of a file may start elsewhere
      if (source % 4) queue.writeBuffer(this.#buffers[buffer], target, memory, source, size);
    }
    staging.unmap();
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(staging, 0, this.#raw, 0, 4 * Math.ceil(size / 4));
    for (const { source, buffer, target, size } of all) {
      if (source % 4 === 0) encoder.copyBufferToBuffer(this.#raw, source, this.#buffers[buffer], target, size);
    }
    const uniforms = dispatches.length ? this.#encode(encoder, dispatches, params) : undefined;
    queue.submit([encoder.finish()]);
    uniforms?.destroy();
    const free = staging.mapAsync(GPUMapMode.WRITE).then(() => mapped(staging));
    free.catch(() => undefined); // reported to the read that awaits it
    this.#free.push(free);
  }

  /**
   * @param {GPUCommandEncoder} encoder @param {Float64Array} dispatches @param {Uint8Array} params
   * @returns {GPUBuffer} uniforms, to be destroyed after the submit
   */
  #encode(encoder, dispatches, params) {
    const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
    const uniforms = this.#device.createBuffer({ label: "repack params", size: params.byteLength, usage });
    this.#device.queue.writeBuffer(uniforms, 0, params);
    const pass = encoder.beginComputePass();
    /** @type {Dispatch[]} */
    const all = rows(dispatches, this.#options.dispatchFields);
    for (const dispatch of all) {
      const resources = [
        { buffer: uniforms, offset: dispatch.params, size: dispatch.params_size },
        { buffer: this.#raw },
        { buffer: this.#buffers[dispatch.buffer], offset: dispatch.offset, size: dispatch.size },
      ];
      const pipeline = this.#pipelines[dispatch.pipeline];
      const layout = pipeline.getBindGroupLayout(0);
      const entries = resources.map((resource, binding) => ({ binding, resource }));
      pass.setPipeline(pipeline);
      pass.setBindGroup(0, this.#device.createBindGroup({ layout, entries }));
      pass.dispatchWorkgroups(dispatch.x, dispatch.y);
    }
    pass.end();
    return uniforms;
  }

  /** @param {GPUBuffer} source @param {number} size @returns {Promise<Uint32Array>} */
  async #download(source, size) {
    const { COPY_DST, MAP_READ } = GPUBufferUsage;
    const buffer = this.#device.createBuffer({ label: "checksums read", size, usage: COPY_DST | MAP_READ });
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(source, 0, buffer, 0, size);
    this.#device.queue.submit([encoder.finish()]);
    try {
      await buffer.mapAsync(GPUMapMode.READ);
      return new Uint32Array(buffer.getMappedRange().slice(0));
    } finally {
      buffer.destroy();
    }
  }

  /** Waits until the GPU has written all weights, then frees the staging memory. */
  async end() {
    await this.#device.queue.onSubmittedWorkDone();
    this.close();
  }

  /** Frees the staging memory. A stream that is running fails. */
  close() {
    this.#closed = true;
    for (const buffer of [this.#raw, ...this.#slots]) buffer.destroy();
    this.#slots = this.#free = [];
    spare.length = 0;
  }
}

/**
 * Objects with these fields, from consecutive numbers.
 * @param {Float64Array} numbers @param {string[]} fields @returns {any[]}
 */
function rows(numbers, fields) {
  return Array.from({ length: numbers.length / fields.length }, (_, i) =>
    Object.fromEntries(fields.map((field, k) => [field, numbers[i * fields.length + k]])),
  );
}

/** @param {GPUBuffer} buffer @returns {Slot} */
const mapped = (buffer) => ({ buffer, memory: new Uint8Array(buffer.getMappedRange()) });

/** @type {ArrayBuffer[]} buffers to read into, reused because the system fills new memory with zeros */
const spare = [];

/** Reads a Blob into memory; returns whether it gave all its bytes. @param {Uint8Array} memory @param {Blob} data */
async function fill(memory, data) {
  const reader = readerOf(data.stream());
  const timer = setTimeout(() => reader.cancel(), TIMEOUT_MS); // read() then returns what it has: too few bytes
  let chunk = spare.pop() ?? new ArrayBuffer(CHUNK);
  let at = 0;
  try {
    for (;;) {
      const { value, done } = await reader.read(new Uint8Array(chunk));
      if (value) chunk = /** @type {ArrayBuffer} */ (value.buffer);
      if (done || !value) return at === data.size;
      memory.set(value, at);
      at += value.length;
    }
  } finally {
    clearTimeout(timer);
    if (chunk.byteLength === CHUNK) spare.push(chunk);
  }
}

/**
 * A reader that fills given memory where the browser can; else one that allocates.
 * @param {ReadableStream<Uint8Array>} stream
 * @returns {ReadableStreamBYOBReader}
 */
function readerOf(stream) {
  try {
    return stream.getReader({ mode: "byob" });
  } catch {
    return /** @type {any} */ (stream.getReader());
  }
}
