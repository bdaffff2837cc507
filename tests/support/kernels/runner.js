// Runs shaders in the page for tests/kernels. Buffers come from transfer.py, and go back to it.

let device;
const pipelines = new Map(); // code -> [layout, pipeline]: compiling dominates the time

/** Opens the device; returns the adapter's features and limits. */
async function open() {
  let adapter = null;
  for (let i = 0; i < 40 && !adapter; i++) {
    adapter = await navigator.gpu.requestAdapter();
    if (!adapter) await new Promise((wake) => setTimeout(wake, 250));
  }
  const requiredFeatures = ["shader-f16", "subgroups"].filter((f) => adapter.features.has(f));
  const names = [
    ...["maxStorageBuffersPerShaderStage", "maxComputeWorkgroupStorageSize", "maxStorageBufferBindingSize"],
    ...["maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX"],
  ];
  const requiredLimits = Object.fromEntries(names.map((n) => [n, adapter.limits[n]]));
  device = await adapter.requestDevice({ requiredFeatures, requiredLimits });
  const { subgroupMinSize, description, vendor } = adapter.info;
  return { features: requiredFeatures, limits: requiredLimits, subgroupMinSize, description, vendor };
}

async function compile(code, buffers) {
  const types = { uniform: "uniform", "storage, read": "read-only-storage", "storage, read_write": "storage" };
  const layout = device.createBindGroupLayout({
    entries: buffers.map((b, binding) => ({
      binding,
      visibility: GPUShaderStage.COMPUTE,
      buffer: { type: types[b.access] },
    })),
  });
  const module = device.createShaderModule({ code });
  const { messages } = await module.getCompilationInfo();
  const errors = messages.filter((m) => m.type === "error").map((m) => `${m.lineNum}: ${m.message}`);
  if (errors.length) throw new Error(errors.join("\n"));
  const pipeline = await device.createComputePipelineAsync({
    layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
    compute: { module, entryPoint: "main" },
  });
  return [layout, pipeline];
}

/**
 * Runs shaders one after another. Data goes in and out once, because that takes longer than small kernels do.
 * @typedef {{code: string, params: string, bindings: {access: string, buffer: string}[], grid: number[]}} Step
 * @param {{address: string, buffers: Record<string, number>, steps: Step[]}} job with the sizes of the buffers, in the
 *   order in which they are at the address
 * @returns {Promise<Record<string, number>>} the sizes of the written buffers, in the order in which they were sent there
 */
async function run({ address, buffers, steps }) {
  const contents = new Uint8Array(await (await fetch(address)).arrayBuffer());
  device.pushErrorScope("validation");
  const made = [];
  const make = (data, usage) => {
    const size = Math.max(16, Math.ceil(data.length / 16) * 16);
    made.push(device.createBuffer({ size, usage: usage | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC }));
    device.queue.writeBuffer(made.at(-1), 0, data);
    return made.at(-1);
  };
  let end = 0;
  const held = Object.fromEntries(
    Object.entries(buffers).map(([name, size]) => {
      end += size;
      return [name, make(contents.subarray(end - size, end), GPUBufferUsage.STORAGE)];
    }),
  );
  const encoder = device.createCommandEncoder();
  const written = new Set();
  for (const { code, params, bindings, grid } of steps) {
    if (!pipelines.has(code)) pipelines.set(code, await compile(code, bindings));
    const [layout, pipeline] = pipelines.get(code);
    const entries = bindings.map(({ access, buffer }, binding) => {
      if (access === "storage, read_write") written.add(buffer);
      const bound = access === "uniform" ? make(Uint8Array.fromBase64(params), GPUBufferUsage.UNIFORM) : held[buffer];
      return { binding, resource: { buffer: bound } };
    });
    const pass = encoder.beginComputePass();
    pass.setPipeline(pipeline);
    pass.setBindGroup(0, device.createBindGroup({ layout, entries }));
    pass.dispatchWorkgroups(...grid);
    pass.end();
  }
  const out = [...written].map((name) => {
    const { size } = held[name];
    const copy = device.createBuffer({ size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
    encoder.copyBufferToBuffer(held[name], 0, copy, 0, size);
    return [name, copy];
  });
  device.queue.submit([encoder.finish()]);
  const error = await device.popErrorScope();
  if (error) throw new Error(error.message);
  await Promise.all(out.map(([, copy]) => copy.mapAsync(GPUMapMode.READ)));
  // A Blob's bytes stay out of the messages that Playwright gets about requests.
  await fetch(address, { method: "POST", body: new Blob(out.map(([, copy]) => copy.getMappedRange())) });
  out.forEach(([, copy]) => copy.destroy());
  made.forEach((b) => b.destroy());
  return Object.fromEntries(out.map(([name, { size }]) => [name, size]));
}

globalThis.kernels = { open, run };
