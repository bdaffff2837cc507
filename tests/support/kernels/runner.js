// Runs one shader in the page, with buffers as base64, for tests/kernels.

const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const text = (data) => {
  let out = "";
  for (let i = 0; i < data.length; i += 32768) out += String.fromCharCode(...data.subarray(i, i + 32768));
  return btoa(out);
};

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
  const names = ["maxStorageBuffersPerShaderStage", "maxComputeWorkgroupStorageSize", "maxStorageBufferBindingSize"];
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
 * @param {{code: string, params: string, buffers: {name: string, access: string, data: string}[], grid: number[]}} job
 * @returns {Promise<Record<string, string>>} the contents of the writable buffers afterwards
 */
async function run({ code, params, buffers, grid }) {
  device.pushErrorScope("validation");
  if (!pipelines.has(code)) pipelines.set(code, await compile(code, buffers));
  const [layout, pipeline] = pipelines.get(code);
  const make = (data, usage) => {
    const size = Math.max(16, Math.ceil(data.length / 16) * 16);
    const buffer = device.createBuffer({ size, usage: usage | GPUBufferUsage.COPY_DST | GPUBufferUsage.COPY_SRC });
    device.queue.writeBuffer(buffer, 0, data);
    return buffer;
  };
  const made = buffers.map((b) =>
    b.access === "uniform" ? make(bytes(params), GPUBufferUsage.UNIFORM) : make(bytes(b.data), GPUBufferUsage.STORAGE),
  );
  const entries = made.map((buffer, binding) => ({ binding, resource: { buffer } }));
  const encoder = device.createCommandEncoder();
  const pass = encoder.beginComputePass();
  pass.setPipeline(pipeline);
  pass.setBindGroup(0, device.createBindGroup({ layout, entries }));
  pass.dispatchWorkgroups(...grid);
  pass.end();
  const out = [];
  buffers.forEach((b, i) => {
    if (b.access !== "storage, read_write") return;
    const size = made[i].size;
    const copy = device.createBuffer({ size, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
    encoder.copyBufferToBuffer(made[i], 0, copy, 0, size);
    out.push([b.name, copy]);
  });
  device.queue.submit([encoder.finish()]);
  const error = await device.popErrorScope();
  if (error) throw new Error(error.message);
  const result = {};
  for (const [name, copy] of out) {
    await copy.mapAsync(GPUMapMode.READ);
    result[name] = text(new Uint8Array(copy.getMappedRange()));
    copy.destroy();
  }
  made.forEach((b) => b.destroy());
  return result;
}

globalThis.kernels = { open, run };
