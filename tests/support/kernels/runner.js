// Runs shaders in the page for tests/kernels. Contents of buffers come from transfer.py, and go back to it.

let device;
const codes = new Map(); // number -> the code of a shader
const pipelines = new Map(); // number of the code -> [layout, pipeline]: compiling dominates the time

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

/** Destroys the device and its pipelines. The codes stay, since Python knows that the page has them. */
function close() {
  device.destroy();
  pipelines.clear();
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
 * @typedef {{code: number, params: string, bindings: {access: string, buffer: string}[], grid: number[]}} Step
 * @typedef {{address: string, inline: number, contents: string | null, buffers: Record<string, number>,
 *   codes: Record<string, string>, steps: Step[]}} Job
 *   with the sizes of the buffers, in the order in which they are in `contents` (base64), or at the address if that is
 *   null; and the codes that no job had before
 * @param {string} job a Job as JSON
 * @returns {Promise<string>} JSON: the sizes of the written buffers, and in the same order their contents (base64), or
 *   null if these have more than `inline` bytes and were sent to the address
 */
async function run(job) {
  const { address, inline, contents: text, buffers, codes: added, steps } = JSON.parse(job);
  for (const [number, code] of Object.entries(added)) codes.set(Number(number), code);
  const contents =
    text === null ? new Uint8Array(await (await fetch(address)).arrayBuffer()) : Uint8Array.fromBase64(text);
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
    if (!pipelines.has(code)) pipelines.set(code, await compile(codes.get(code), bindings));
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
  const sizes = Object.fromEntries([...written].map((name) => [name, held[name].size]));
  const size = Object.values(sizes).reduce((sum, one) => sum + one, 0);
  const copy = device.createBuffer({ size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
  let at = 0;
  for (const [name, length] of Object.entries(sizes)) {
    encoder.copyBufferToBuffer(held[name], 0, copy, at, length);
    at += length;
  }
  device.queue.submit([encoder.finish()]);
  const error = await device.popErrorScope();
  if (error) throw new Error(error.message);
  await copy.mapAsync(GPUMapMode.READ);
  const results = copy.getMappedRange();
  const inMessage = size <= inline ? new Uint8Array(results).toBase64() : null;
  // A Blob's bytes stay out of the messages that Playwright gets about requests.
  if (inMessage === null) await fetch(address, { method: "POST", body: new Blob([results]) });
  copy.destroy();
  made.forEach((b) => b.destroy());
  return JSON.stringify({ sizes, contents: inMessage });
}

globalThis.kernels = { open, run, close };
