// Takes weights into a GPU: a record goes into staging memory that stays mapped, which the GPU copies on into the buffer
// `raw`, and from there to where it stays, as it is or through a repack kernel (upload.py says what goes where).
//
// writeBuffer would do, but it takes new memory each time, and filling that for the first time costs more than the copy.

import { checksum } from "../files/shards.js";

const PAD = 256; // behind a record in `raw`, where a kernel may look
const COPY_FIELDS = 4;
const JOB_FIELDS = 8;
const TELL_MS = 50; // between two words on how far a stream is
const CHUNK = 1 << 20; // bytes to read at once, about what a browser's pipe holds
const STANDSTILL_MS = 30_000; // for a record: one that takes longer is read in another way

/**
 * @typedef {{ copies: Float64Array, jobs: Float64Array, params: Uint8Array }} Work  what becomes of a record
 *   copies: (byte in the record, buffer, byte there, bytes) of each: bytes that stay as they are
 *   jobs: (pipeline, buffer, first byte and bytes of the plane there, byte in `params`, bytes of them, workgroups x, y)
 *   of each: dispatches on `raw`
 *   params: their uniforms
 * @typedef {{ buffer: GPUBuffer, memory: Uint8Array<ArrayBuffer> }} Slot  mapped
 * @typedef {{ data: Blob, check?: number[] }} Kept  a record on a disk, and the checksum it should have
 */

export class Upload {
  #device;
  #raw;
  /** @type {GPUBuffer[]} */
  #slots;
  /** @type {Promise<Slot>[]} of each staging buffer, in the order in which they will be free */
  #free;
  /** @type {GPUComputePipeline[]} */
  #pipelines = [];
  /** @type {GPUBuffer[]} */
  #buffers = [];
  /** @type {((work: Work) => void)[]} who waits for the next record's work */
  #wanted = [];
  /** @type {Promise<Work>[]} */
  #work = [];
  #closed = false;
  written_ms = 0; // spent on handing records of streams to the GPU

  /** @param {GPUDevice} device @param {number} size of the largest record @param {number} slots records under way */
  constructor(device, size, slots) {
    const { COPY_DST, COPY_SRC, MAP_WRITE, STORAGE } = GPUBufferUsage;
    const usage = MAP_WRITE | COPY_SRC;
    this.#device = device;
    this.#raw = device.createBuffer({ label: "raw", size: size + PAD, usage: STORAGE | COPY_DST | COPY_SRC });
    this.#slots = Array.from({ length: slots }, () =>
      device.createBuffer({ label: "staging", size, usage, mappedAtCreation: true }),
    );
    this.#free = this.#slots.map((buffer) => Promise.resolve(mapped(buffer)));
  }

  /** @param {GPUComputePipeline} pipeline @returns {number} what a job calls it */
  addPipeline = (pipeline) => this.#pipelines.push(pipeline) - 1;

  /** @param {GPUBuffer} buffer @returns {number} what a job or a copy calls it */
  addBuffer = (buffer) => this.#buffers.push(buffer) - 1;

  /**
   * Waits for staging memory and takes a record in, which may go when this is done; what is asked of the GPU may not be.
   * @param {ArrayBuffer} data @param {Float64Array} copies @param {Float64Array} jobs @param {Uint8Array} params
   */
  async take(data, copies, jobs, params) {
    const slot = await this.#next();
    slot.memory.set(new Uint8Array(data));
    this.#send(slot, data.byteLength, { copies, jobs, params });
  }

  /**
   * Begins to read `count` records, several at a time, and takes each in as soon as its work is known.
   * @param {(i: number) => Promise<Kept | undefined>} open
   * @param {number} count
   * @param {boolean} here whether their checksums are taken here, not by jobs
   * @param {(records: number) => void} tell how many were read, now and then
   * @returns {{ sums: number, done: Promise<{ failed: number[], read_ms: number }> }} what a job calls the buffer of
   *   checksums; those records that could not be read, or are not what their checksum says, and the time of reading
   */
  stream(open, count, here, tell) {
    const { COPY_SRC, STORAGE } = GPUBufferUsage;
    const size = 8 * Math.max(1, count);
    const sums = this.#device.createBuffer({ label: "checksums", size, usage: STORAGE | COPY_SRC });
    this.#wanted = [];
    this.#work = Array.from({ length: count }, () => new Promise((known) => this.#wanted.push(known)));
    const done = this.#run(open, count, here ? undefined : sums, tell).finally(() => sums.destroy());
    done.catch(() => undefined); // whoever waits is told
    return { sums: this.addBuffer(sums), done };
  }

  /** Says what becomes of the next record. @type {(copies: Float64Array, jobs: Float64Array, params: Uint8Array) => void} */
  add = (copies, jobs, params) => this.#wanted.shift()?.({ copies, jobs, params });

  /**
   * @param {(i: number) => Promise<Kept | undefined>} open @param {number} count
   * @param {GPUBuffer | undefined} sums where jobs put the checksums
   * @param {(records: number) => void} tell
   */
  async #run(open, count, sums, tell) {
    /** @type {Promise<{ slot: Slot, kept: Kept | undefined, ms: number }>[]} */
    const window = [];
    /** @type {(Kept | undefined)[]} */
    const taken = [];
    let read_ms = 0;
    let told = performance.now();
    for (let i = 0, next = 0; i < count; i++) {
      for (; next < count && window.length < this.#slots.length; next++) {
        const reading = this.#read(open(next), !sums);
        reading.catch(() => undefined); // looked at in turn
        window.push(reading);
      }
      const { slot, kept, ms } = await /** @type {typeof window[0]} */ (window.shift());
      const work = await this.#work[i];
      const begun = performance.now();
      if (kept) this.#send(slot, kept.data.size, work);
      else this.#free.push(Promise.resolve(slot));
      taken.push(kept);
      read_ms += ms;
      const now = performance.now();
      this.written_ms += now - begun;
      if (now - told > TELL_MS) {
        tell(i + 1);
        told = now;
      }
    }
    const found = count && sums ? await this.#download(sums, 8 * count) : undefined;
    const right = (/** @type {Kept} */ { check }, /** @type {number} */ i) =>
      !check || !found || (check[0] === found[2 * i] && check[1] === found[2 * i + 1]);
    return { failed: taken.flatMap((kept, i) => (kept && right(kept, i) ? [] : [i])), read_ms };
  }

  /**
   * Reads a record into the next staging memory.
   * @param {Promise<Kept | undefined>} opening @param {boolean} checks whether to look at it, too
   */
  async #read(opening, checks) {
    opening.catch(() => undefined); // looked at below
    const slot = await this.#next();
    const begun = performance.now();
    const kept = await opening.catch(() => undefined);
    const whole = kept && (await fill(slot.memory, kept.data).catch(() => false));
    if (this.#closed) throw new Error("the upload has ended");
    const ms = performance.now() - begun;
    const wrong =
      checks && whole && kept.check && String(checksum(slot.memory.buffer, kept.data.size)) !== String(kept.check);
    return { slot, kept: whole && !wrong ? kept : undefined, ms };
  }

  async #next() {
    return /** @type {Promise<Slot>} */ (this.#free.shift());
  }

  /** @param {Slot} slot @param {number} size of its record @param {Work} work */
  #send({ buffer: slot, memory }, size, { copies, jobs, params }) {
    const { queue } = this.#device;
    for (let i = 0; i < copies.length; i += COPY_FIELDS) {
      const [from, buffer, to, bytes] = copies.subarray(i, i + COPY_FIELDS);
      if (from % 4) queue.writeBuffer(this.#buffers[buffer], to, memory, from, bytes); // of an oddly aligned file
    }
    slot.unmap();
    const encoder = this.#device.createCommandEncoder();
    encoder.copyBufferToBuffer(slot, 0, this.#raw, 0, 4 * Math.ceil(size / 4));
    for (let i = 0; i < copies.length; i += COPY_FIELDS) {
      const [from, buffer, to, bytes] = copies.subarray(i, i + COPY_FIELDS);
      if (from % 4 === 0) encoder.copyBufferToBuffer(this.#raw, from, this.#buffers[buffer], to, bytes);
    }
    const used = jobs.length ? this.#dispatch(encoder, jobs, params) : undefined;
    queue.submit([encoder.finish()]);
    used?.destroy();
    const free = slot.mapAsync(GPUMapMode.WRITE).then(() => mapped(slot));
    free.catch(() => undefined); // whoever waits for it is told
    this.#free.push(free);
  }

  /**
   * @param {GPUCommandEncoder} encoder @param {Float64Array} jobs @param {Uint8Array} params
   * @returns {GPUBuffer} that may go when this is submitted
   */
  #dispatch(encoder, jobs, params) {
    const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
    const uniforms = this.#device.createBuffer({ label: "repack params", size: params.byteLength, usage });
    this.#device.queue.writeBuffer(uniforms, 0, params);
    const pass = encoder.beginComputePass();
    for (let i = 0; i < jobs.length; i += JOB_FIELDS) {
      const [pipeline, buffer, at, bytes, offset, length, x, y] = jobs.subarray(i, i + JOB_FIELDS);
      const resources = [
        { buffer: uniforms, offset, size: length },
        { buffer: this.#raw },
        { buffer: this.#buffers[buffer], offset: at, size: bytes },
      ];
      const layout = this.#pipelines[pipeline].getBindGroupLayout(0);
      const entries = resources.map((resource, binding) => ({ binding, resource }));
      pass.setPipeline(this.#pipelines[pipeline]);
      pass.setBindGroup(0, this.#device.createBindGroup({ layout, entries }));
      pass.dispatchWorkgroups(x, y);
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

  /** Waits until the weights are in place. */
  async end() {
    await this.#device.queue.onSubmittedWorkDone();
    this.close();
  }

  /** Gives the staging memory back; a stream ends. */
  close() {
    this.#closed = true;
    for (const buffer of [this.#raw, ...this.#slots]) buffer.destroy();
    this.#slots = this.#free = [];
    spare.length = 0;
  }
}

/** @param {GPUBuffer} buffer @returns {Slot} */
const mapped = (buffer) => ({ buffer, memory: new Uint8Array(buffer.getMappedRange()) });

/** @type {ArrayBuffer[]} memory to read into, which a system does not have to fill with zeros again */
const spare = [];

/** Puts a Blob's bytes into memory; says whether they were all there. @param {Uint8Array} memory @param {Blob} data */
async function fill(memory, data) {
  const reader = readerOf(data.stream());
  const end = setTimeout(() => reader.cancel(), STANDSTILL_MS); // read() then gives what it has, which is too little
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
    clearTimeout(end);
    if (chunk.byteLength === CHUNK) spare.push(chunk);
  }
}

/**
 * Reads into memory it is given, where the browser can; else into new memory.
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
