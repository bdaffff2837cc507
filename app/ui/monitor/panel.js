/** The monitor: an engine's figures with their history, warnings, and what the engine did by itself. A bundle of its own. */
import { h, iconButton } from "../dom.js";
import { bytes, rate, seconds } from "../format.js";
import { kernels } from "./kernels.js";
import { Plot } from "./plot.js";
import { warningsOf } from "./warnings.js";

/**
 * @typedef {import("../../sdk/monitor.js").Sample} Sample
 * @typedef {import("../../wisp.js").Wisp} Wisp
 * @typedef {import("../monitor.js").Reaction} Reaction
 * @typedef {{ wisp: () => Promise<Wisp>, reactions: Reaction[], closed: () => void }} Parts
 */

const percent = (/** @type {number} */ part) => `${Math.round(100 * part)} %`;
const orNone = (/** @type {number | null} */ value, /** @type {(value: number) => string} */ text) =>
  value === null ? "–" : text(value);

/** @type {import("./plot.js").Figure[]} */
const PLOTS = [
  {
    title: "Tokens per second",
    values: (sample) => [sample.tokens_per_second],
    format: rate,
    text: (sample) => rate(sample.tokens_per_second),
  },
  {
    title: "Time to the first token",
    values: (sample) => [sample.first_token_ms],
    format: (ms) => (ms ? seconds(ms) : "0 s"),
    text: (sample) => orNone(sample.first_token_ms, seconds),
  },
  {
    title: "Prompt tokens per second",
    values: (sample) => [sample.prompt_tokens_per_second],
    format: rate,
    text: (sample) => orNone(sample.prompt_tokens_per_second, rate),
  },
  {
    title: "Prompt tokens from the cache",
    values: (sample) => [sample.cache_hit_rate],
    format: percent,
    text: (sample) => orNone(sample.cache_hit_rate, percent),
    max: 1,
  },
  {
    title: "Memory and its budget",
    values: (sample) => [sample.used, sample.budget],
    format: bytes,
    text: (sample) => `${bytes(sample.used)} of ${bytes(sample.budget)}`,
  },
  {
    title: "Python's memory",
    values: (sample) => [sample.heap],
    format: bytes,
    text: (sample) => `${bytes(sample.heap)}${sample.heap_growth > 0 ? `, ${bytes(sample.heap_growth)} more` : ""}`,
  },
];

const POOLS = /** @type {Record<string, string>} */ ({
  weights: "Weights",
  kv: "KV cache",
  activations: "Activations",
});

export class Panel {
  #parts;
  #plots = PLOTS.map((figure) => new Plot(figure));
  #warnings = h("div", { class: "monitor-warnings", role: "status" });
  #facts = h("dl", { class: "monitor-facts" });
  #sequences = h("div", { class: "meters" });
  #pools = h("div", { class: "meters" });
  #reactions = h("ul", { class: "reactions" });
  #element;
  /** @type {ReturnType<Wisp["monitor"]> | null} while it is open */
  #monitor = null;
  /** @type {string} JSON lines of the times that it was open */
  #earlier = "";

  /** @param {Parts} parts */
  constructor(parts) {
    this.#parts = parts;
    const close = iconButton("close", "Close the monitor", () => this.toggle());
    const save = h(
      "button",
      { type: "button", class: "button", on: { click: () => this.#save() } },
      "Save as JSON lines",
    );
    this.#element = h(
      "aside",
      { class: "monitor", hidden: true, "aria-labelledby": "monitor-title" },
      h("div", { class: "monitor-head" }, h("h2", { id: "monitor-title" }, "Monitor"), close),
      h(
        "div",
        { class: "monitor-body", tabIndex: 0, role: "group", "aria-label": "Figures" },
        this.#warnings,
        h("div", { class: "figures" }, ...this.#plots.map(({ element }) => element)),
        this.#facts,
        h("h3", {}, "KV cache by request"),
        this.#sequences,
        h("h3", {}, "Memory of this model"),
        this.#pools,
        h("h3", {}, "GPU time by kernel"),
        kernels(parts.wisp),
        h("h3", {}, "What the engine did by itself"),
        this.#reactions,
        save,
      ),
    );
    this.#element.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      event.stopPropagation();
      this.toggle();
    });
    document.body.append(this.#element);
    const repaint = () => {
      for (const plot of this.#plots) plot.reset();
      this.#show();
    };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
    new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  }

  async toggle() {
    this.#element.hidden = !this.#element.hidden;
    if (this.#element.hidden) {
      this.#monitor?.stop();
      this.#earlier += this.#monitor?.lines() ?? "";
      this.#monitor = null;
      return this.#parts.closed();
    }
    this.#element.querySelector("button")?.focus();
    const wisp = await this.#parts.wisp();
    if (this.#element.hidden || this.#monitor) return;
    this.#monitor = wisp.monitor();
    this.#monitor.onSample = () => this.#show();
  }

  #show() {
    const samples = this.#monitor?.samples ?? [];
    const now = samples.at(-1);
    if (!now) return;
    for (const plot of this.#plots) plot.show(samples);
    const warnings = warningsOf(samples);
    if (warnings.join() !== this.#warnings.dataset.shown)
      this.#warnings.replaceChildren(...warnings.map((text) => h("p", { class: "monitor-warning" }, text)));
    this.#warnings.dataset.shown = warnings.join();
    this.#facts.replaceChildren(
      ...fact("Model", now.model ?? "none"),
      ...fact("Requests", String(now.requests)),
      ...fact(
        "Tokens a step with drafts",
        orNone(now.tokens_per_draft_step, (value) => value.toFixed(2)),
      ),
      ...fact(
        "Download",
        orNone(now.link, (speed) => `${bytes(speed)}/s`),
      ),
    );
    const context = now.context_length ?? 0;
    const running = now.sequences.map(({ number, tokens, waits }) =>
      meter(`Request ${number + 1}${waits ? ", waits" : ""}`, tokens, context, `${tokens} of ${context} tokens`),
    );
    this.#sequences.replaceChildren(...(running.length ? running : [h("p", { class: "note" }, "No request runs.")]));
    this.#pools.replaceChildren(
      ...Object.entries(now.memory).map(([pool, size]) => meter(POOLS[pool] ?? pool, size, now.budget, bytes(size))),
    );
    this.#showReactions(now);
  }

  /** @param {Sample} now */
  #showReactions({ notices }) {
    const { reactions } = this.#parts;
    const lines = [
      ...reactions.map(({ time, text }) => `${new Date(time).toLocaleTimeString()} ${text}`),
      ...notices.filter((notice) => !reactions.some(({ text }) => text.endsWith(notice))),
    ];
    const items = (lines.length ? lines : ["Nothing yet."]).map((line) => h("li", {}, line));
    if (lines.join() !== this.#reactions.dataset.shown) this.#reactions.replaceChildren(...items);
    this.#reactions.dataset.shown = lines.join();
  }

  #save() {
    const lines = this.#earlier + (this.#monitor?.lines() ?? "");
    const url = URL.createObjectURL(new Blob([lines], { type: "application/jsonl" }));
    h("a", { href: url, download: "wisp-monitor.jsonl" }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60_000);
  }
}

/** @param {string} name @param {string} value */
const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];

/** @param {string} name @param {number} value @param {number} max @param {string} text */
function meter(name, value, max, text) {
  const bar = h("meter", { min: 0, max: Math.max(1, max), value, high: 0.8 * max, "aria-label": name });
  return h("div", { class: "meter" }, h("span", {}, name), bar, h("span", {}, text));
}
