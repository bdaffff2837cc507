/** Samples of an engine's figures, as `engine.monitor()` takes them. */

/**
 * @typedef {import("./figures.d.ts").Sample} Sample
 * @typedef {import("./figures.d.ts").Stats} Stats
 * @typedef {import("./figures.d.ts").MonitorHandle} MonitorHandle
 */

const REQUESTS = 8; // that the hit rate covers
const LINK_MS = 3000; // after which a download's speed no longer counts
const SHORT_PROMPT = 16; // tokens: fewer give no rate

/** @typedef {{ sample: Sample, totals: Stats["totals"] | null }} Entry */

/** @implements {MonitorHandle} */
export class Monitor {
  /** @type {Entry[]} */
  #entries = [];
  #timer;
  #read;
  #most;
  #link = { speed: 0, time: -Infinity };
  #stopped = () => {};
  #reading = false;

  /** @type {(sample: Sample) => void} */
  onSample = () => {};

  /**
   * @param {() => Promise<Stats>} read `stats()`
   * @param {{ interval?: number, most?: number }} options ms between two samples; how many are held, the newest ones
   */
  constructor(read, { interval = 1000, most = 3600 } = {}) {
    this.#read = read;
    this.#most = most;
    this.#timer = setInterval(() => void this.#sample(), interval);
    void this.#sample();
  }

  /** Takes a download's speed from progress reports. @param {Set<import("./connection.js").OnProgress>} listeners */
  watchLink(listeners) {
    /** @type {import("./connection.js").OnProgress} */
    const listen = ({ stage, speed }) => {
      if (stage === "download" && speed) this.#link = { speed, time: performance.now() };
    };
    listeners.add(listen);
    this.#stopped = () => listeners.delete(listen);
  }

  /** The samples, oldest first. */
  get samples() {
    return this.#entries.map(({ sample }) => sample);
  }

  /** The samples as JSON lines. */
  lines() {
    return this.samples.map((sample) => `${JSON.stringify(sample)}\n`).join("");
  }

  stop() {
    clearInterval(this.#timer);
    this.#stopped();
  }

  async #sample() {
    if (this.#reading) return; // a busy engine gets no second question
    this.#reading = true;
    try {
      const stats = await this.#read();
      const link = performance.now() - this.#link.time < LINK_MS ? this.#link.speed : null;
      const sample = sampleOf(stats, this.#entries, link, Date.now());
      this.#entries.push({ sample, totals: stats.totals ?? null });
      if (this.#entries.length > this.#most) this.#entries.shift();
      this.onSample(sample);
    } catch {
      // the engine is being replaced: the next sample may work
    } finally {
      this.#reading = false;
    }
  }
}

/** @param {Stats} stats @param {Entry[]} before @param {number | null} link @param {number} time @returns {Sample} */
export function sampleOf(stats, before, link, time) {
  const { totals, last, memory } = stats;
  const { wasm_heap: heap = 0, ...pools } = memory ?? {};
  const newest = before.at(-1);
  const own = totals ? before.filter((entry) => sameModel(entry, stats)) : [];
  const since = own.at(-1);
  const made = totals && since?.totals ? totals.completion_tokens - since.totals.completion_tokens : 0;
  const fed = last ? last.prompt_tokens - last.cached_tokens : 0;
  const decoded = last ? last.completion_tokens - 1 : 0;
  return {
    time,
    model: stats.model ?? null,
    requests: totals?.requests ?? 0,
    tokens_per_second: since ? (1000 * made) / Math.max(1, time - since.sample.time) : 0,
    token_ms: decoded > 0 && last?.decode_ms ? last.decode_ms / decoded : null,
    first_token_ms: last?.prefill_ms || null,
    prompt_tokens_per_second: fed >= SHORT_PROMPT && last?.prefill_ms ? (1000 * fed) / last.prefill_ms : null,
    tokens_per_draft_step: totals?.draft_steps ? totals.draft_tokens / totals.draft_steps : null,
    cache_hit_rate: totals ? hitRate(totals, own) : null,
    sequences: stats.sequences ?? [],
    context_length: stats.context_length ?? null,
    memory: pools,
    heap,
    heap_growth: heap - (before[0]?.sample.heap ?? heap),
    used: stats.bytes ?? 0,
    budget: stats.budget ?? 0,
    link,
    notices:
      newest && equal(newest.sample.notices, stats.notices ?? []) ? newest.sample.notices : (stats.notices ?? []),
  };
}

/** Whether an entry's counters are of the model that is loaded now: those of another one begin again. @param {Entry} entry @param {Stats} stats */
function sameModel({ sample, totals }, stats) {
  return Boolean(totals && stats.totals && sample.model === stats.model && totals.requests <= stats.totals.requests);
}

/** @param {NonNullable<Stats["totals"]>} totals @param {Entry[]} own earlier entries of the same model */
function hitRate(totals, own) {
  const from = own.findLast((entry) => totals.requests - (entry.totals?.requests ?? 0) >= REQUESTS)?.totals;
  const prompts = totals.prompt_tokens - (from?.prompt_tokens ?? 0);
  return prompts ? (totals.cached_tokens - (from?.cached_tokens ?? 0)) / prompts : null;
}

/** @param {string[]} a @param {string[]} b */
const equal = (a, b) => a.length === b.length && a.every((text, i) => text === b[i]);
