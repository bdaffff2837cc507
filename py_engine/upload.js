// Takes weights into a GPU: a record is copied into staging memory that stays mapped, which the GPU copies on, straight
// to where it stays or through the buffer `raw` and a repack kernel (upload.py says what goes where).
//
// writeBuffer would do, but it takes new memory each time, and filling that for the first time costs more than the copy.

const PAD = 256; // behind a record in `raw`, where a kernel may look
const COPY_FIELDS = 4;
const JOB_FIELDS = 8;

export class Upload {
  #device;
  #raw;
  /** @type {GPUBuffer[]} */
  #slots;
  /** @type {Promise<GPUBuffer>[]} of each staging buffer, in the order in which they will be free */
  #free;
  /** @type {GPUComputePipeline[]} */
  #pipelines = [];
  /** @type {GPUBuffer[]} */
  #buffers = [];

  /** @param {GPUDevice} device @param {number} size of the largest record @param {number} slots records under way */
  constructor(device, size, slots) {
    const { COPY_DST, COPY_SRC, MAP_WRITE, STORAGE } = GPUBufferUsage;
    const usage = MAP_WRITE | COPY_SRC;
    this.#device = device;
    this.#raw = device.createBuffer({ label: "raw", size: size + PAD, usage: STORAGE | COPY_DST });
    this.#slots = Array.from({ length: slots }, () =>
      device.createBuffer({ label: "staging", size, usage, mappedAtCreation: true }),
    );
    this.#free = this.#slots.map((slot) => Promise.resolve(slot));
  }

  /** @param {GPUComputePipeline} pipeline @returns {number} what a job calls it */
  addPipeline = (pipeline) => this.#pipelines.push(pipeline) - 1;

  /** @param {GPUBuffer} buffer @returns {number} what a job or a copy calls it */
  addBuffer = (buffer) => this.#buffers.push(buffer) - 1;

  /**
   * Waits for staging memory and takes a record in, which may go when this is done; what is asked of the GPU may not be.
   * @param {ArrayBuffer} data
   * @param {Float64Array} copies (byte in the record, buffer, byte there, bytes) of each: bytes that stay as they are
   * @param {Float64Array} jobs (pipeline, buffer, first byte and bytes of the plane there, byte in `params`, bytes of
   *   them, workgroups x, y) of each: repack dispatches
   * @param {Uint8Array} params their uniforms
   */
  async take(data, copies, jobs, params) {
    const slot = /** @type {GPUBuffer} */ (await this.#free.shift());
    new Uint8Array(slot.getMappedRange()).set(new Uint8Array(data));
    slot.unmap();
    const encoder = this.#device.createCommandEncoder();
    for (let i = 0; i < copies.length; i += COPY_FIELDS) {
      const [from, buffer, to, size] = copies.subarray(i, i + COPY_FIELDS);
      if (from % 4 === 0) encoder.copyBufferToBuffer(slot, from, this.#buffers[buffer], to, size);
      else this.#device.queue.writeBuffer(this.#buffers[buffer], to, data, from, size); // of an oddly aligned file
    }
    const used = jobs.length ? this.#repack(encoder, slot, data.byteLength, jobs, params) : undefined;
    this.#device.queue.submit([encoder.finish()]);
    used?.destroy();
    const mapped = slot.mapAsync(GPUMapMode.WRITE).then(() => slot);
    mapped.catch(() => undefined); // take() tells
    this.#free.push(mapped);
  }

  /**
   * @param {GPUCommandEncoder} encoder @param {GPUBuffer} slot @param {number} size @param {Float64Array} jobs
   * @param {Uint8Array} params @returns {GPUBuffer} that may go when this is submitted
   */
  #repack(encoder, slot, size, jobs, params) {
    const usage = GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST;
    const uniforms = this.#device.createBuffer({ label: "repack params", size: params.byteLength, usage });
    this.#device.queue.writeBuffer(uniforms, 0, params);
    encoder.copyBufferToBuffer(slot, 0, this.#raw, 0, 4 * Math.ceil(size / 4));
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

  /** Waits until the weights are in place. */
  async end() {
    await this.#device.queue.onSubmittedWorkDone();
    this.close();
  }

  /** Gives the staging memory back. */
  close() {
    for (const buffer of [this.#raw, ...this.#slots]) buffer.destroy();
    this.#slots = this.#free = [];
  }
}
