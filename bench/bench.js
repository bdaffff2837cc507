/**
 * Measures a model through the SDK: load, prefill by prompt length, decode by context, time per kernel.
 * Each figure is the median of several runs. Every prompt is new random ids, so the KV cache cannot be reused.
 */
import { loadAgain } from "./upload.js";

/**
 * @typedef {object} Options
 * @property {any} model as for `load()`
 * @property {number[]} [prompts] lengths to prefill
 * @property {number[]} [contexts] lengths to decode at
 * @property {number} [tokens] to decode in each run
 * @property {number} [runs]
 * @property {number} [secondsPerRow] start no further run of a row after this time; one always runs
 * @property {string} [backend]
 * @property {number} [contextLength]
 * @property {number} [threads] on the CPU
 * @property {"f16" | "f32" | "q8_0"} [kvType]
 * @property {boolean} [tune] as for `load()`
 * @property {number[]} [together] requests at once
 * @property {number[]} [profileAt] positions whose decode step is timed by kernel (default: contexts)
 * @property {number[]} [profilePrompts] batches whose prefill is timed by kernel
 * @property {File} [text] whose perplexity is measured
 * @property {(done: number, total: number) => void} [onChunk] called for the text's chunks
 * @property {AbortSignal} [signal] aborts with the error "aborted"
 *
 * @typedef {{ what: string, value: number, unit: string }} Row
 * @typedef {import("../app/sdk/types.d.ts").Dispatch} Dispatch
 * @typedef {{ kernel: string, count: number, us: number, total_us: number, bytes: number, flops: number,
 *   floor_us: number }} KernelTime  us: of one of `count` dispatches; total_us: of all; bytes, flops, floor_us: of one
 * @typedef {{ us: number, kernels_us: number, wall_us: number | null, floor_us: number, bytes: number, flops: number,
 *   dispatches: number }} Step  us: on the GPU; kernels_us: sum of its kernels; wall_us: by the host's clock
 * @typedef {Record<string, any>} Result
 */

/** @param {number[]} values */
export function median(values) {
  const sorted = values.toSorted((a, b) => a - b);
  return (sorted[(values.length - 1) >> 1] + sorted[values.length >> 1]) / 2;
}

/** @param {number} n @param {number} vocab */
const randomIds = (n, vocab) => Array.from({ length: n }, () => Math.floor(Math.random() * vocab));

const VOCAB = 256; // ids below are in every vocabulary
const ENDLESS = {
  type: "json_schema",
  json_schema: { name: "list", schema: { type: "array", items: { type: "string" }, minItems: 10_000 } },
};
const SAMPLING = { temperature: 0.4, top_p: 0.95, top_k: 40, min_p: 0.05 }; // the chat page's defaults
const WARM_UP = 500; // ms
const CHUNK = 512; // tokens of a text whose perplexity is measured
const MARGIN = 64; // positions that the engine's profile needs after the last one

/**
 * @param {any} engine a Wisp @param {Options} options
 * @param {(row: Row, soFar: Result) => void} onRow called with each figure as it arrives
 * @returns {Promise<Result>} everything measured
 */
export async function bench(engine, options, onRow = () => {}) {
  const { model, prompts = [32, 512, 2048], contexts = [16, 1024, 8192], tokens = 128, runs = 5, signal } = options;
  const { profileAt = contexts, profilePrompts = [32, 512], secondsPerRow = Infinity } = options;
  const { backend, contextLength, kvType, tune, threads, together = [1, 2, 4, 8] } = options;
  const parallel = Math.max(1, ...together);
  // Answers to random prompts often repeat themselves, so speculative decoding would look too good.
  const request = { model, backend, contextLength, kvType, tune, parallel, threads, speculation: false };
  await engine.unload(); // a model that is loaded already would take no time
  const started = performance.now();
  await engine.load(request, { signal });
  const load_ms = performance.now() - started;
  const first = await engine.stats();
  const limit = first.context_length;
  /** @type {Result} */
  const result = {
    model: first.model ?? String(model?.name ?? model),
    date: new Date().toISOString(),
    user_agent: navigator.userAgent,
    threads: first.threads || navigator.hardwareConcurrency,
    options: { prompts, contexts, tokens, runs, backend: backend ?? "auto" },
    ...{ backend: first.backend, adapter: first.adapter, context_length: limit, load_ms },
    ...{ timings: first.timings, memory: first.memory, notices: first.notices },
    ...{ prefill: [], decode: [], together: [], kernels: {}, steps: {}, skipped: [] },
  };
  const skip = (/** @type {string} */ what, /** @type {string} */ why) => result.skipped.push({ what, why });
  const report = (/** @type {string} */ what, /** @type {number} */ value, /** @type {string} */ unit) =>
    onRow({ what, value, unit }, result);
  report("load", load_ms, "ms");
  if (first.backend === "webgpu") {
    result.upload = await loadAgain(engine, request, { signal });
    report("upload of the cached model", result.upload.per_second / 1e9, "GB/s");
  }

  const run = async (/** @type {number} */ n, /** @type {number} */ max_tokens) => {
    await engine.completions.create({ prompt: randomIds(n, VOCAB), max_tokens, temperature: 0 }, { signal });
    return engine.stats();
  };
  /** A run that decodes at least half of the tokens: a model may end its answer early. @param {number} n */
  const decode = async (n) => {
    let best = await run(n, tokens);
    for (let again = 0; best.last.completion_tokens <= tokens / 2 && again < 3; again++) {
      const other = await run(n, tokens);
      if (other.last.completion_tokens > best.last.completion_tokens) best = other;
    }
    return best;
  };
  /** Results of up to `runs` runs. @template T @param {() => Promise<T>} measure @returns {Promise<T[]>} */
  const repeat = async (measure) => {
    const begun = performance.now();
    const found = [await measure()];
    while (found.length < runs && performance.now() - begun < 1000 * secondsPerRow) found.push(await measure());
    return found;
  };

  const begun = performance.now();
  do await run(Math.min(prompts[0] ?? 8, limit - 8), 8);
  while (performance.now() - begun < WARM_UP); // compiles lazy kernels, and lets the GPU's clocks rise
  for (const n of prompts) {
    if (n >= limit) {
      skip(`prefill ${n}`, `the context holds ${limit}`);
      continue;
    }
    const speeds = await repeat(async () => (1000 * n) / (await run(n, 1)).last.prefill_ms);
    const per_second = median(speeds);
    result.prefill.push({ prompt: n, ms: (1000 * n) / per_second, per_second, ...spread(speeds) });
    report(`prefill ${n}`, per_second, "tok/s");
  }
  for (const n of contexts) {
    if (n + tokens > limit) {
      skip(`decode at ${n}`, `the context holds ${limit}`);
      continue;
    }
    const all = (await repeat(() => decode(n))).filter(({ last }) => last.completion_tokens > 1 && last.decode_ms > 0);
    if (!all.length) {
      skip(`decode at ${n}`, "the model ended every answer at once");
      continue;
    }
    // The first token belongs to the prefill.
    const speeds = all.map(({ last }) => (1000 * (last.completion_tokens - 1)) / last.decode_ms);
    const per_second = median(speeds);
    const longest = all.reduce((a, b) => (b.last.completion_tokens > a.last.completion_tokens ? b : a));
    const { dispatches_per_token: dispatches, submits_per_token: submits } = longest;
    result.decode.push({ context: n, per_second, ms: 1000 / per_second, dispatches, submits, ...spread(speeds) });
    report(`decode at ${n}`, per_second, "tok/s");
  }
  const context = contexts.find((n) => n + tokens <= limit);
  for (const n of context === undefined ? [] : together) {
    const at_once = async () => {
      const prompts = Array.from({ length: n }, () => randomIds(context ?? 0, VOCAB));
      const begun = performance.now();
      const ask = (/** @type {number[]} */ prompt) =>
        engine.completions.create({ prompt, max_tokens: tokens, temperature: 0 }, { signal });
      const answers = await Promise.all(prompts.map(ask));
      const made = answers.map(({ usage }) => usage.completion_tokens);
      return (1000 * sum(made)) / (performance.now() - begun);
    };
    await at_once(); // reserves the sequences, and compiles their kernels
    const speeds = await repeat(at_once);
    const per_second = median(speeds);
    result.together.push({ requests: n, context, per_second, ...spread(speeds) });
    report(`${n} requests at once, in sum`, per_second, "tok/s");
  }
  /** Compares requests with greedy ones that run in between. @param {number} context @param {string} what @param {object} how */
  const compare = async (context, what, how) => {
    const prompt = randomIds(context, VOCAB);
    const speed = async (/** @type {object} */ how) => {
      await engine.completions.create({ prompt, max_tokens: tokens, temperature: 0, ...how }, { signal });
      const { last } = await engine.stats();
      return (1000 * (last.completion_tokens - 1)) / last.decode_ms;
    };
    try {
      await speed(how); // compiles the grammar, or kernels
      const pairs = await repeat(async () => [await speed({ ignore_eos: true }), await speed(how)]);
      const per_second = median(pairs.map(([, compared]) => compared));
      const ratio = median(pairs.map(([greedy, compared]) => compared / greedy)); // of consecutive runs
      report(`decode at ${context}, with ${what}`, per_second, "tok/s");
      return { context, per_second, ratio, runs: pairs.length };
    } catch (error) {
      signal?.throwIfAborted();
      skip(`decode with ${what}`, /** @type {Error} */ (error).message);
    }
  };
  if (context !== undefined) {
    result.sampled = await compare(context, "the chat page's sampling", { ignore_eos: true, ...SAMPLING });
    result.constrained = await compare(context, "a JSON schema", { response_format: ENDLESS });
  }
  if (options.text) {
    result.quality = await perplexity(engine, options.text, options).catch((error) => {
      signal?.throwIfAborted();
      skip(`perplexity of ${options.text?.name}`, /** @type {Error} */ (error).message);
    });
    if (result.quality) report(`perplexity of ${options.text.name}`, result.quality.perplexity, "");
  }
  result.memory = (await engine.stats()).memory;
  const profile = async (
    /** @type {string} */ name,
    /** @type {number} */ at,
    /** @type {number} */ n,
    /** @type {{ ms: number } | undefined} */ measured,
  ) => {
    signal?.throwIfAborted();
    /** @type {Dispatch[]} */
    const times = await engine.profile(at, n).catch((/** @type {Error} */ error) => (skip(name, error.message), []));
    const dispatches = times.filter(({ kernel }) => kernel !== "step");
    result.kernels[name] = summary(dispatches);
    const whole = times.find(({ kernel }) => kernel === "step");
    if (!whole) return;
    result.steps[name] = {
      ...{ us: whole.ns / 1000, kernels_us: sum(dispatches.map(({ ns }) => ns / 1000)) },
      ...{ wall_us: measured ? 1000 * measured.ms : null, floor_us: whole.floor_ns / 1000 },
      ...{ bytes: whole.bytes, flops: whole.flops, dispatches: dispatches.length },
    };
    report(`kernels, ${name}`, whole.ns / 1000, "us");
  };
  for (const at of profileAt) {
    const row = result.decode.find((/** @type {any} */ { context }) => context === at);
    if (at + MARGIN < limit) await profile(`decode at ${at}`, at, 1, row);
  }
  // Prefill splits a longer prompt into batches of at most first.batch tokens.
  for (const n of new Set(profilePrompts.map((n) => Math.min(n, first.batch ?? n)))) {
    const row = result.prefill.find((/** @type {any} */ { prompt }) => prompt === n);
    if (n < limit) await profile(`prefill ${n}`, 0, n, row);
  }
  const { read_rates, multiply_rates } = await engine.stats();
  Object.assign(result, { read_rates, multiply_rates });
  return result;
}

/**
 * The perplexity of a text file, in chunks of llama-perplexity's length, or of the context if that is shorter.
 * @param {any} engine @param {File} file @param {Pick<Options, "signal" | "onChunk">} options
 */
async function perplexity(engine, file, { signal, onChunk: onProgress }) {
  const { model, context_length } = await engine.stats();
  const chunk = Math.min(CHUNK, context_length);
  const found = await engine.quality.perplexity(await file.text(), { model, contextLength: chunk, signal, onProgress });
  return { file: file.name, chunk, ...found };
}

/** @param {number[]} values */
const sum = (values) => values.reduce((a, b) => a + b, 0);

/** @param {number[]} speeds */
const spread = (speeds) => ({ slowest: Math.min(...speeds), fastest: Math.max(...speeds), runs: speeds.length });

/** Times grouped by kernel, the costliest first. @param {Dispatch[]} times @returns {KernelTime[]} */
export function summary(times) {
  /** @type {Map<string, Dispatch[]>} */
  const byKernel = new Map();
  for (const time of times) byKernel.set(time.kernel, [...(byKernel.get(time.kernel) ?? []), time]);
  return [...byKernel]
    .map(([kernel, all]) => ({
      kernel,
      count: all.length,
      us: median(all.map(({ ns }) => ns / 1000)),
      total_us: sum(all.map(({ ns }) => ns / 1000)),
      bytes: median(all.map(({ bytes }) => bytes)),
      flops: median(all.map(({ flops }) => flops)),
      floor_us: median(all.map(({ floor_ns }) => floor_ns / 1000)),
    }))
    .sort((a, b) => b.total_us - a.total_us);
}
