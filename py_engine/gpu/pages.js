/** Copies pages of the KV caches, and moves them between the GPU and the host, as they are. */

/**
 * @typedef {object} CacheBuffer  keys, values or states of a layer
 * @property {GPUBuffer} buffer
 * @property {number} size bytes of a page in it
 * @property {boolean} stored whether its pages are moved to the host and back
 */

export class Pages {
  #device;
  #groups;

  /** @param {GPUDevice} device @param {CacheBuffer[][]} groups the caches of each page group */
  constructor(device, groups) {
    this.#device = device;
    this.#groups = groups;
  }

  /**
   * Copies a page to another one in all caches of a group.
   * @param {number} group @param {number} source @param {number} to
   * @param {GPUBuffer} scratch holds a page of one cache meanwhile: WebGPU cannot copy within a buffer
   */
  copy(group, source, to, scratch) {
    const encoder = this.#device.createCommandEncoder();
    for (const { buffer, size } of this.#groups[group]) {
      encoder.copyBufferToBuffer(buffer, source * size, scratch, 0, size);
      encoder.copyBufferToBuffer(scratch, 0, buffer, to * size, size);
    }
    this.#device.queue.submit([encoder.finish()]);
  }

  /**
   * Reads pages (group, page): the contents of each in all stored caches of its group, one after the other.
   * @param {[number, number][]} pages @returns {Promise<ArrayBuffer>}
   */
  async read(pages) {
    const parts = pages.flatMap(([group, page]) => this.#stored(group).map((cache) => ({ ...cache, page })));
    const size = parts.reduce((sum, part) => sum + part.size, 0);
    const staging = this.#device.createBuffer({ size, usage: GPUBufferUsage.MAP_READ | GPUBufferUsage.COPY_DST });
    const encoder = this.#device.createCommandEncoder();
    let at = 0;
    for (const { buffer, page, size } of parts) {
      encoder.copyBufferToBuffer(buffer, page * size, staging, at, size);
      at += size;
    }
    this.#device.queue.submit([encoder.finish()]);
    try {
      await staging.mapAsync(GPUMapMode.READ);
      return staging.getMappedRange().slice(0);
    } finally {
      staging.destroy();
    }
  }

  /**
   * Writes pages (group, page, first byte in `data`). What is submitted later sees them.
   * @param {[number, number, number][]} pages @param {ArrayBuffer} data
   */
  write(pages, data) {
    for (const [group, page, first] of pages) {
      let at = first;
      for (const { buffer, size } of this.#stored(group)) {
        this.#device.queue.writeBuffer(buffer, page * size, data, at, size);
        at += size;
      }
    }
  }

  /** @param {number} group */
  #stored(group) {
    return this.#groups[group].filter(({ stored }) => stored);
  }
}
