/** The proof's calls of WebGPU for many dispatches at once: each call from Python takes as long as ten from here. */

/**
 * @typedef {[buffer: GPUBuffer, offset: number, size: number]} Place
 *
 * Creates a GPUBuffer with bytes of Python's memory.
 * @param {GPUDevice} device @param {{ getBuffer(type: "u8"): { data: Uint8Array, release(): void } }} bytes
 * @param {number} usage
 */
export function upload(device, bytes, usage) {
  const memory = bytes.getBuffer("u8");
  try {
    const buffer = device.createBuffer({ label: "proof", size: memory.data.length, usage });
    device.queue.writeBuffer(buffer, 0, memory.data);
    return buffer;
  } finally {
    memory.release();
  }
}

/** Creates bind groups. @param {GPUDevice} device @param {[GPUBindGroupLayout, Place[]][]} groups */
export function bindGroups(device, groups) {
  return groups.map(([layout, places]) =>
    device.createBindGroup({
      layout,
      entries: places.map(([buffer, offset, size], binding) => ({ binding, resource: { buffer, offset, size } })),
    }),
  );
}

/**
 * Runs dispatches in one pass, then copies buffers to `staging`, one after the other.
 * @param {GPUDevice} device @param {GPUBindGroup[]} groups @param {[GPUComputePipeline, number, number, number][]} dispatches
 * @param {[GPUBuffer, number][]} written buffers and their sizes @param {GPUBuffer} staging
 */
export function run(device, groups, dispatches, written, staging) {
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  dispatches.forEach(([pipeline, x, y, z], i) => {
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, groups[i]);
    pass.dispatchWorkgroups(x, y, z);
  });
  pass.end();
  let at = 0;
  for (const [buffer, size] of written) {
    encoder.copyBufferToBuffer(buffer, 0, staging, at, size);
    at += size;
  }
  device.queue.submit([encoder.finish()]);
}
