/**
 * Measures a model through the SDK: load, prefill by prompt length, decode by context, GPU time per kernel.
 * Each figure is the median of several runs; prompts are random ids, fresh each time, so that no cache answers them.
 */

/**
 * @typedef {{ model: any, prompts?: number[], contexts?: number[], tokens?: number, runs?: number, backend?: string,
 *   contextLength?: number, profileAt?: number[] }} Options
 */

/** @param {number[]} values */
export const median = (values) => values.sort((a, b) => a - b)[values.length >> 1];

/** @param {number} n @param {number} vocab */
const randomIds = (n, vocab) => Array.from({ length: n }, () => Math.floor(Math.random() * vocab));

/**
 * @param {any} engine a Wisp @param {Options} options @param {(row: Record<string, any>) => void} onRow
 * @returns {Promise<Record<string, any>>} everything measured
 */
export async function bench(engine, options, onRow = () => {}) {
  const { model, prompts = [32, 512, 2048], contexts = [16, 1024, 8192], tokens = 128, runs = 5 } = options;
  const started = performance.now();
  await engine.load({ model, backend: options.backend, contextLength: options.contextLength });
  const load_ms = performance.now() - started;
  const first = await engine.stats();
  const limit = first.context_length;
  const vocab = 256; // ids that every vocabulary has
  /** @type {Record<string, any>} */
  const result = { model: String(model?.name ?? model), backend: first.backend, load_ms, timings: first.timings };
  Object.assign(result, { memory: first.memory, notices: first.notices, prefill: [], decode: [], kernels: {} });
  onRow({ what: "load", value: load_ms, unit: "ms" });

  /** @param {number} n @param {number} max_tokens */
  const run = async (n, max_tokens) => {
    await engine.completions.create({ prompt: randomIds(n, vocab), max_tokens, temperature: 0 });
    return engine.stats();
  };
  await run(Math.min(prompts[0], limit - 8), 8); // compiles what compiles late
  for (const n of prompts.filter((n) => n < limit)) {
    const times = [];
    for (let i = 0; i < runs; i++) times.push((await run(n, 1)).last.prefill_ms);
    const row = { prompt: n, ms: median(times), per_second: (1000 * n) / median(times) };
    result.prefill.push(row);
    onRow({ what: `prefill ${n}`, value: row.per_second, unit: "tok/s" });
  }
  for (const n of contexts.filter((n) => n + tokens <= limit)) {
    const speeds = [];
    let last = first;
    for (let i = 0; i < runs; i++) {
      last = await run(n, tokens);
      if (last.last.completion_tokens > 1)
        speeds.push((1000 * (last.last.completion_tokens - 1)) / last.last.decode_ms);
    }
    const row = {
      context: n,
      per_second: median(speeds),
      dispatches: last.dispatches_per_token,
      submits: last.submits_per_token,
    };
    result.decode.push(row);
    onRow({ what: `decode at ${n}`, value: row.per_second, unit: "tok/s" });
  }
  for (const at of first.backend === "webgpu" ? (options.profileAt ?? contexts) : []) {
    if (at + 64 < limit) result.kernels[`decode at ${at}`] = summary(await engine.profile(at).catch(() => []));
  }
  if (first.backend === "webgpu") {
    for (const n of [32, 512]) result.kernels[`prefill ${n}`] = summary(await engine.profile(0, n).catch(() => []));
  }
  return result;
}

/** Dispatches of the same kernel together: count, microseconds each. @param {{ kernel: string, ns: number }[]} times */
export function summary(times) {
  /** @type {Map<string, number[]>} */
  const byKernel = new Map();
  for (const { kernel, ns } of times) byKernel.set(kernel, [...(byKernel.get(kernel) ?? []), ns / 1000]);
  return [...byKernel].map(([kernel, us]) => ({
    kernel,
    count: us.length,
    us: median(us),
    total_us: us.reduce((a, b) => a + b, 0),
  }));
}
