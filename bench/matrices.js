/**
 * What subgroup matrices give on a device: products of f16 with f32 sums in registers alone, and a whole product in tiles
 * as matmul_matrix.wgsl has them, with parts of it left out. docs/contributing/speed-of-prompts.md has figures.
 */

const SIDE = 16; // rows and columns of a matrix
const TILE = 128; // rows and columns of a workgroup's tile
const DEPTH = 64; // columns at a time
const PITCH = DEPTH + 8; // of a row in workgroup memory
const THREADS = 256; // eight subgroups: two along the rows, four along the columns, with 4 x 2 matrices each
const LOADS = (TILE * DEPTH) / 8 / THREADS; // vectors of eight halves that a thread loads of each operand
const SHAPE = { rows: 4096, columns: 1152, depth: 4352 };
const RUNS = 5;
const FLOP = 1e12; // of a measurement, some milliseconds

/**
 * @typedef {object} Parts
 * @property {"read" | "read_write"} access of the operands; nothing writes to them
 * @property {boolean} loads each step's operands, or only the first one's
 * @property {boolean} multiplies in each step, or only in the last one
 */

const HEAD = `enable f16;
enable chromium_experimental_subgroup_matrix;
diagnostic(off, chromium.subgroup_matrix_uniformity);
alias Left = subgroup_matrix_left<f16, ${SIDE}, ${SIDE}>;
alias Right = subgroup_matrix_right<f16, ${SIDE}, ${SIDE}>;
alias Result = subgroup_matrix_result<f32, ${SIDE}, ${SIDE}>;
@group(0) @binding(0) var<storage, read_write> y: array<f32>;`;

/** @param {number} count @param {(i: number) => string} line @returns {string} */
const repeat = (count, line) => Array.from({ length: count }, (_, i) => line(i)).join("\n");
/** Lines for each matrix of a subgroup's 4 x 2. @param {(i: number, j: number) => string} line @returns {string} */
const each = (line) => repeat(4, (i) => repeat(2, (j) => line(i, j)));

/** A kernel that multiplies `steps` times in registers. @param {number} steps @returns {string} */
export function inRegisters(steps) {
  return `${HEAD}
var<workgroup> ones: array<f16, ${SIDE * SIDE}>;
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) t: u32) {
  ones[t] = f16(t % 7u) / 64.0;
  workgroupBarrier();
  let a = subgroupMatrixLoad<Left>(&ones, 0u, false, ${SIDE}u);
  let b = subgroupMatrixLoad<Right>(&ones, 0u, true, ${SIDE}u);
  ${each((i, j) => `var sum${i}_${j} = Result();`)}
  for (var step = 0u; step < ${steps}u; step++) {
    ${each((i, j) => `sum${i}_${j} = subgroupMatrixMultiplyAccumulate(a, b, sum${i}_${j});`)}
  }
  let first = (group.x % 64u * ${THREADS / 32}u + t / 32u) * ${8 * SIDE * SIDE}u;
  ${each((i, j) => `subgroupMatrixStore(&y, first + ${(2 * i + j) * SIDE * SIDE}u, sum${i}_${j}, false, ${SIDE}u);`)}
}`;
}

/** A kernel for y (rows, columns) = x (rows, depth) w (columns, depth)^T. @param {Parts} parts @returns {string} */
export function product({ access, loads, multiplies }) {
  /** @param {string} at @returns {string} */
  const load = (at) =>
    `{ let at = ${at} / 8u;
      ${repeat(LOADS, (q) => `x${q} = x[x_at${q} + at];`)}
      ${repeat(LOADS, (q) => `w${q} = w[w_at${q} + at];`)} }`;
  /** @param {string} name @returns {string} */
  const store = (name) =>
    repeat(
      LOADS,
      (q) => `{
        let e = t + ${q * THREADS}u;
        let at = e / ${DEPTH / 8}u * ${PITCH}u + e % ${DEPTH / 8}u * 8u;
        let low = bitcast<vec4<f16>>(${name}${q}.xy);
        let high = bitcast<vec4<f16>>(${name}${q}.zw);
        ${repeat(4, (c) => `${name}s[at + ${c}u] = low[${c}u];`)}
        ${repeat(4, (c) => `${name}s[at + ${c + 4}u] = high[${c}u];`)} }`,
    );
  const multiply = repeat(
    DEPTH / SIDE,
    (k) => `{
      ${repeat(2, (j) => `let b${j} = subgroupMatrixLoad<Right>(&ws, (column + ${j * SIDE}u) * ${PITCH}u + ${k * SIDE}u, true, ${PITCH}u);`)}
      ${repeat(
        4,
        (i) => `{
        let a = subgroupMatrixLoad<Left>(&xs, (row + ${i * SIDE}u) * ${PITCH}u + ${k * SIDE}u, false, ${PITCH}u);
        ${repeat(2, (j) => `sum${i}_${j} = subgroupMatrixMultiplyAccumulate(a, b${j}, sum${i}_${j});`)} }`,
      )} }`,
  );
  return `${HEAD}
@group(0) @binding(1) var<storage, ${access}> x: array<vec4u>;
@group(0) @binding(2) var<storage, ${access}> w: array<vec4u>;
var<workgroup> xs: array<f16, ${TILE * PITCH}>;
var<workgroup> ws: array<f16, ${TILE * PITCH}>;
@compute @workgroup_size(${THREADS})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) t: u32) {
  let row0 = group.y * ${TILE}u;
  let column0 = group.x * ${TILE}u;
  let row = t / 32u / 4u * 64u;
  let column = t / 32u % 4u * 32u;
  ${each((i, j) => `var sum${i}_${j} = Result();`)}
  ${repeat(LOADS, (q) => `let x_at${q} = (row0 + (t + ${q * THREADS}u) / ${DEPTH / 8}u) * ${SHAPE.depth / 8}u + (t + ${q * THREADS}u) % ${DEPTH / 8}u;`)}
  ${repeat(LOADS, (q) => `let w_at${q} = (column0 + (t + ${q * THREADS}u) / ${DEPTH / 8}u) * ${SHAPE.depth / 8}u + (t + ${q * THREADS}u) % ${DEPTH / 8}u;`)}
  ${repeat(LOADS, (q) => `var x${q}: vec4u; var w${q}: vec4u;`)}
  ${load("0u")}
  for (var at = 0u; at < ${SHAPE.depth}u; at += ${DEPTH}u) {
    ${store("x")}
    ${store("w")}
    workgroupBarrier();
    ${loads ? load(`min(at + ${DEPTH}u, ${SHAPE.depth - DEPTH}u)`) : ""}
    ${multiplies ? multiply : ""}
    workgroupBarrier();
  }
  ${multiplies ? "" : multiply}
  ${each((i, j) => `subgroupMatrixStore(&y, (row0 + row + ${i * SIDE}u) * ${SHAPE.columns}u + column0 + column + ${j * SIDE}u, sum${i}_${j}, false, ${SHAPE.columns}u);`)}
}`;
}

/** TFLOP/s by what was measured, medians; an object with `error` where the device has no such matrices. */
export async function measure() {
  const adapter = await navigator.gpu.requestAdapter();
  const feature = /** @type {GPUFeatureName} */ ("chromium-experimental-subgroup-matrix");
  /** @type {GPUFeatureName[]} */
  const requiredFeatures = ["shader-f16", "timestamp-query", feature];
  if (!adapter || requiredFeatures.some((name) => !adapter.features.has(name)))
    return { error: "The browser has no subgroup matrices of f16, or no times of commands." };
  const { maxComputeWorkgroupStorageSize } = adapter.limits;
  const device = await adapter.requestDevice({ requiredFeatures, requiredLimits: { maxComputeWorkgroupStorageSize } });
  const { rows, columns, depth } = SHAPE;
  const usage = GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST;
  const buffers = [4 * rows * columns, 2 * rows * depth, 2 * columns * depth].map((size) =>
    device.createBuffer({ size, usage }),
  );
  for (const buffer of buffers.slice(1)) {
    const halves = Uint16Array.from({ length: buffer.size / 2 }, (_, i) => 0x2000 + (Math.imul(i, 40503) & 0x83ff));
    device.queue.writeBuffer(buffer, 0, halves);
  }
  const steps = 4000;
  const workgroups = 1024;
  /** @type {Record<string, { code: string, grid: [number, number], flop: number, bound: number }>} */
  const kernels = {
    "in registers": {
      code: inRegisters(steps),
      grid: [workgroups, 1],
      flop: 2 * SIDE ** 3 * 8 * (THREADS / 32) * steps * workgroups,
      bound: 1,
    },
  };
  /** @type {Record<string, Parts>} */
  const ways = {
    "a product, read-only": { access: "read", loads: true, multiplies: true },
    "a product, read_write": { access: "read_write", loads: true, multiplies: true },
    "without multiplying": { access: "read", loads: true, multiplies: false },
    "without loading": { access: "read", loads: false, multiplies: true },
  };
  for (const [name, parts] of Object.entries(ways))
    kernels[name] = {
      code: product(parts),
      grid: [columns / TILE, rows / TILE],
      flop: 2 * rows * columns * depth,
      bound: 3,
    };
  const queries = device.createQuerySet({ type: "timestamp", count: 2 });
  const resolved = device.createBuffer({ size: 16, usage: GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC });
  const read = device.createBuffer({ size: 16, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.MAP_READ });
  /** @type {Record<string, number>} */
  const found = {};
  for (const [name, { code, grid, flop, bound }] of Object.entries(kernels)) {
    const module = device.createShaderModule({ code });
    const pipeline = await device.createComputePipelineAsync({ layout: "auto", compute: { module } });
    const entries = buffers.slice(0, bound).map((buffer, binding) => ({ binding, resource: { buffer } }));
    const group = device.createBindGroup({ layout: pipeline.getBindGroupLayout(0), entries });
    const times = [];
    for (let run = 0; run < RUNS; run++) {
      const repeats = Math.ceil(FLOP / flop);
      for (const timed of [false, true]) {
        // the first pass raises the GPU's clocks
        const timestampWrites = { querySet: queries, beginningOfPassWriteIndex: 0, endOfPassWriteIndex: 1 };
        const encoder = device.createCommandEncoder();
        const pass = encoder.beginComputePass(timed ? { timestampWrites } : {});
        pass.setPipeline(pipeline);
        pass.setBindGroup(0, group);
        for (let i = 0; i < repeats; i++) pass.dispatchWorkgroups(...grid);
        pass.end();
        if (timed) encoder.resolveQuerySet(queries, 0, 2, resolved, 0);
        if (timed) encoder.copyBufferToBuffer(resolved, 0, read, 0, 16);
        device.queue.submit([encoder.finish()]);
        await device.queue.onSubmittedWorkDone(); // or the next pass would seem to begin before this one's end
      }
      await read.mapAsync(GPUMapMode.READ);
      const [begun, ended] = new BigUint64Array(read.getMappedRange().slice(0));
      read.unmap();
      times.push(Number(ended - begun) / repeats);
    }
    found[name] = flop / times.sort((a, b) => a - b)[RUNS >> 1] / 1000;
  }
  device.destroy();
  return found;
}
