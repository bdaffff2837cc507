/** Measures wllama (llama.cpp in WebAssembly) on the same file, from the timings that wllama reports. */
import { median } from "./bench.js";

/** @typedef {{ backend: string, file: string | null, prompts: number[], contexts: number[], tokens: number, runs: number, n_ctx: number }} Options */

const QUIET = { debug() {}, log() {}, warn() {}, error() {} };
const LOAD_MS = 180_000;
const LETTERS = "abcdefghijklmnopqrstuvwxyz";

/** Random lower-case words. @param {number} length */
function randomText(length) {
  let text = "";
  while (text.length < length) text += Math.random() < 0.2 ? " " : LETTERS[Math.floor(Math.random() * 26)];
  return text;
}

/**
 * @param {Options} options backend: "webgpu", "wasm" (one thread), "wasm threads"; `file`: an address, or null for the files chosen in the page
 * @param {(what: string, value: number) => void} onRow
 */
async function measure({ backend, file, prompts, contexts, tokens, runs, n_ctx }, onRow) {
  const address = new URL("wllama/index.js", location.href).href; // on the bench's own server
  const { Wllama } = /** @type {typeof import("@wllama/wllama")} */ (await import(address));
  if (backend === "webgpu") await needF16();
  const wllama = new Wllama({ default: new URL("wllama/wasm/wllama.wasm", location.href).href }, { logger: QUIET });
  const started = performance.now();
  const loading = wllama.loadModel(await blobs(file), {
    n_ctx,
    n_gpu_layers: backend === "webgpu" ? 99999 : 0,
    n_threads: backend === "wasm" ? 1 : navigator.hardwareConcurrency,
  });
  await Promise.race([loading, late()]);
  const load_ms = performance.now() - started;
  onRow("load", load_ms);
  /** @type {Record<string, any>} */
  const result = { backend, load_ms, threads: wllama.getNumThreads(), prefill: [], decode: [] };
  let perToken = 2; // characters; updated by each answer

  const run = async (/** @type {number} */ n, /** @type {number} */ max_tokens) => {
    /** @param {number} left @returns {Promise<any>} */
    const attempt = async (left) => {
      const prompt = randomText(Math.round(n * perToken));
      const request = { prompt, max_tokens, temperature: 0, cache_prompt: false, ignore_eos: true };
      try {
        return { prompt, timings: (await wllama.createCompletion(request)).timings };
      } catch (error) {
        if (left === 0) throw error; // wllama sometimes cannot parse its worker's answer
        return attempt(left - 1);
      }
    };
    const { prompt, timings } = await attempt(3);
    if (!timings) throw new Error("wllama gave no timings");
    perToken = prompt.length / timings.prompt_n;
    return timings;
  };
  await run(Math.min(64, n_ctx / 4), 8);
  await run(Math.min(64, n_ctx / 4), 2);
  for (const n of prompts.filter((n) => n + 16 < n_ctx)) {
    const speeds = [];
    for (let i = 0; i < runs; i++) {
      const { prompt_n, prompt_ms } = await run(n, 1);
      speeds.push((1000 * prompt_n) / prompt_ms);
    }
    result.prefill.push({ prompt: n, per_second: median(speeds), runs: speeds.length });
    onRow(`prefill ${n}`, median(speeds));
  }
  for (const n of contexts.filter((n) => 1.1 * n + tokens < n_ctx)) {
    const speeds = [];
    for (let i = 0; i < runs; i++) {
      const { predicted_n, predicted_ms } = await run(n, tokens);
      if (predicted_n > 1) speeds.push((1000 * (predicted_n - 1)) / predicted_ms); // as for Wisp: without the first token
    }
    if (!speeds.length) continue;
    result.decode.push({ context: n, per_second: median(speeds), runs: speeds.length });
    onRow(`decode at ${n}`, median(speeds));
  }
  await wllama.exit();
  return result;
}

/** Without shader-f16, wllama silently falls back to the CPU. */
async function needF16() {
  let adapter = await navigator.gpu?.requestAdapter();
  for (let i = 0; !adapter && navigator.gpu && i < 20; i++) {
    await new Promise((resolve) => setTimeout(resolve, 250)); // a browser that has just started may answer null
    adapter = await navigator.gpu.requestAdapter();
  }
  if (!adapter) throw new Error("there is no WebGPU adapter");
  if (!adapter.features.has("shader-f16"))
    throw new Error("this adapter lacks shader-f16, which wllama's WebGPU needs");
}

/** Rejects after LOAD_MS: a GPU that wllama cannot use may make it wait for ever. @returns {Promise<never>} */
const late = () =>
  new Promise((_, reject) => setTimeout(() => reject(new Error(`not loaded within ${LOAD_MS / 1000} s`)), LOAD_MS));

/** @param {string | null} file @returns {Promise<Blob[]>} */
async function blobs(file) {
  if (file) return [await (await fetch(file)).blob()];
  return [.../** @type {FileList} */ (/** @type {HTMLInputElement} */ (document.querySelector("#file")).files)];
}

Object.assign(globalThis, { measurePeer: measure });
