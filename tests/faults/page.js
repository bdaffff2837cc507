/** In a tab of the campaign: its engine, requests of every kind, and how each of them ended. */

const HANG_MS = 120_000; // longer than any answer on a busy machine

/** @type {any} */
let engine;
let tokens = 0; // parts of answers since start()
/** @type {Promise<any[]>} */
let outcomes = Promise.resolve([]);
/** @type {AbortController} aborts all requests of start() */
let everything = new AbortController();

/** Connects to the engine, also after its worker has ended. @param {string} sdk its URL */
export async function connect(sdk) {
  const { Wisp } = await import(sdk);
  engine = await Wisp.create();
}

/** @param {any} options of engine.load() */
export const load = (options) => limited(engine.load(options));

/** The outcome of a load that may fail. @param {any} options */
export const tryLoad = (options) => settled(() => load(options));

/** Removes a model from the browser's storage, if it is there. @param {string} url */
export const deleteCached = (url) => limited(engine.models.delete(url).catch(() => null));

/** @param {string} [model] */
export const unload = (model) => limited(engine.unload(model));

export const stats = () => limited(engine.stats());

/** Lends the engine to programs of this machine. @param {string} sdk @param {string} url of the bridge's WebSocket */
export const lend = async (sdk, url) => (await import(sdk)).Wisp.lend(url);

/** Starts requests, all at once. @param {any[]} requests */
export function start(requests) {
  tokens = 0;
  everything = new AbortController();
  outcomes = Promise.all(requests.map(outcome));
}

export const seen = () => tokens;
export const ended = () => outcomes;
export const abortAll = () => everything.abort();

/** Runs requests one after the other. @param {any[]} requests */
export async function oneByOne(requests) {
  everything = new AbortController();
  const all = [];
  for (const request of requests) all.push(await outcome(request));
  return all;
}

/**
 * Sends a command to the engine's worker (worker.js). @param {string} worker path of its script @param {string} command
 * @param {any[]} args
 */
export function tell(worker, command, args) {
  const id = Math.random();
  const channel = new BroadcastChannel("wisp.faults");
  const answered = new Promise((resolve) => {
    channel.onmessage = ({ data }) => data.done === id && resolve(data.result ?? null);
  });
  channel.postMessage({ id, worker, command, args });
  return limited(answered).finally(() => channel.close());
}

/** @template T @param {Promise<T>} promise @returns {Promise<T>} */
function limited(promise) {
  /** @type {any} */
  let timer;
  const hang = new Promise((_, reject) => {
    timer = setTimeout(() => reject(Object.assign(new Error("it hangs"), { code: "hang" })), HANG_MS);
  });
  return /** @type {Promise<T>} */ (Promise.race([promise, hang])).finally(() => clearTimeout(timer));
}

/** How a request ended. @param {any} request */
const outcome = (request) => settled(() => limited(perform(request)));

/** {value}, or {error}: its code or name. @param {() => Promise<any>} work */
async function settled(work) {
  try {
    return { value: await work() };
  } catch (/** @type {any} */ error) {
    const errors = /** @type {any} */ (globalThis).openai.constructor; // its class has its errors' classes
    const name = Object.keys(errors).find((key) => errors[key] === error.constructor) ?? error.name;
    return { error: error.code ?? name, message: `${error.message}` };
  }
}

/** @param {{ kind: string, http: boolean, body: any, most?: number }} request */
async function perform({ kind, http, body, most }) {
  const api = http ? /** @type {any} */ (globalThis).openai : engine;
  const options = { signal: everything.signal };
  if (kind === "embed") {
    const { data } = await api.embeddings.create({ encoding_format: "float", ...body }, options);
    tokens++;
    return data.map((/** @type {any} */ { embedding }) => embedding);
  }
  if (kind === "whole") {
    const { choices } = await api.chat.completions.create(body, options);
    tokens++;
    return choices.map((/** @type {any} */ { message, finish_reason }) => [
      message.content ?? "",
      ...(message.tool_calls ?? []).map((/** @type {any} */ { function: call }) => `${call.name} ${call.arguments}`),
      finish_reason,
    ]);
  }
  return streamed(await api.chat.completions.create({ ...body, stream: true }, options), most);
}

/**
 * The texts of a stream, by choice; those of its first chunks where it is left after `most`. A stream that ends without a
 * finish_reason was cut.
 * @param {AsyncIterable<any>} stream @param {number} [most]
 */
async function streamed(stream, most) {
  /** @type {string[][]} */
  const texts = [];
  let chunks = 0;
  for await (const { choices } of stream) {
    for (const { index, delta, finish_reason } of choices) {
      texts[index] ??= [""];
      texts[index][0] += delta.content ?? "";
      if (finish_reason) texts[index].push(finish_reason);
    }
    tokens++;
    if (++chunks === most) return texts.map(([text]) => [text]);
  }
  if (!texts.length || texts.some((text) => text.length < 2)) throw Object.assign(new Error("cut"), { code: "cut" });
  return texts;
}
