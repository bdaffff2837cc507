/**
 * Asks Wisp and wllama (llama.cpp in WebAssembly) about photos, by turns in one page, from the same files.
 *
 * @typedef {object} Asked
 * @property {string} dist address of a copy of dist/
 * @property {string} wllama address of wllama's folder
 * @property {{ model: string, projector: string }} files addresses
 * @property {"cpu" | "webgpu"} backend
 * @property {number} threads of wllama on the CPU; Wisp uses all
 * @property {[number, number]} size width and height in pixels
 * @property {number} runs
 *
 * @typedef {(photo: Blob | null) => Promise<number>} Ask asks about a photo, or without one, for one token; tokens of the prompt
 */
import { photo } from "./photo.js";

const WARM = 1; // runs before those that count
const QUESTION = "What is this?";
const CONTEXT = 2048;
const QUIET = { debug() {}, log() {}, warn() {}, error() {} };

/**
 * Times from a question to its answer of one token, in milliseconds, and the prompts' tokens; with a photo and without.
 * @param {Asked} asked
 */
export async function measure(asked) {
  /** @type {Record<string, Ask>} */
  const engines = { wisp: await wisp(asked), wllama: await wllama(asked) };
  /** @type {Record<string, { photo: number[], text: number[], tokens: number }>} */
  const found = {};
  for (let run = 0; run < WARM + asked.runs; run++) {
    const order = Object.entries(engines);
    for (const [name, ask] of run % 2 ? order.reverse() : order) {
      const times = (found[name] ??= { photo: [], text: [], tokens: 0 });
      for (const kind of /** @type {const} */ (["photo", "text"])) {
        const file = kind === "photo" ? await photo(...asked.size) : null; // a new one each time: encoded photos are cached
        const begun = performance.now();
        const tokens = await ask(file);
        if (run >= WARM) times[kind].push(performance.now() - begun);
        if (file) times.tokens = tokens;
      }
    }
  }
  return found;
}

/** @param {Asked} asked @returns {Promise<Ask>} */
async function wisp({ dist, files, backend, threads }) {
  const { Wisp } = await import(`${dist}/wisp.js`);
  const engine = await Wisp.create({ shared: false });
  await engine.load({ ...files, backend, threads, contextLength: CONTEXT });
  return async (file) => {
    const url = file && URL.createObjectURL(file);
    const content = [...(url ? [{ type: "image_url", image_url: { url } }] : []), { type: "text", text: question() }];
    const request = { messages: [{ role: "user", content }], max_tokens: 1, temperature: 0 };
    return (await engine.chat.completions.create(request)).usage.prompt_tokens;
  };
}

/** @param {Asked} asked @returns {Promise<Ask>} */
async function wllama({ wllama, files, backend, threads }) {
  const { Wllama } = await import(`${wllama}/index.js`);
  const peer = new Wllama({ default: `${wllama}/wasm/wllama.wasm` }, { logger: QUIET });
  const blobs = [files.model, files.projector].map(async (address) => (await fetch(address)).blob());
  const n_gpu_layers = backend === "webgpu" ? 99999 : 0;
  await peer.loadModel(await Promise.all(blobs), { n_ctx: CONTEXT, n_gpu_layers, n_threads: threads });
  if (!peer.supportInputModality("image")) throw new Error("wllama does not take pictures with these files");
  return async (file) => {
    const picture = file ? [{ type: "image", data: await file.arrayBuffer() }] : [];
    const content = [...picture, { type: "text", text: question() }];
    const request = { messages: [{ role: "user", content }], max_tokens: 1, temperature: 0, cache_prompt: false };
    return (await peer.createChatCompletion(request)).usage.prompt_tokens;
  };
}

/** The question after a random number, so that no cache has it. */
const question = () => `${Math.random()} ${QUESTION}`;
