/** The monitor: an engine's figures with their history, warnings, and what the engine did by itself. A bundle of its own. */
import { date, joined, number, t } from "../../language/phrase.js";
import { h, iconButton } from "../dom.js";
import { bytes, percent, rate, seconds, speed } from "../format.js";
import { saveFile } from "../save_file.js";
import { translated } from "../texts.js";
import { kernels } from "./kernels.js";
import { Plot } from "./plot.js";
import { warningsOf } from "./warnings.js";

/**
 * @typedef {import("../../sdk/monitor.js").Sample} Sample
 * @typedef {import("../../wisp.js").Wisp} Wisp
 * @typedef {import("../monitor.js").Reaction} Reaction
 * @typedef {{ wisp: () => Promise<Wisp>, reactions: Reaction[], closed: () => void }} Parts
 */

/** @typedef {import("../texts.js").Text} Text */

const orNone = (/** @type {number | null} */ value, /** @type {(value: number) => Text} */ text) =>
  value === null ? "–" : text(value);

/** @type {import("./plot.js").Figure[]} */
const PLOTS = [
  {
    title: t("Tokens per second"),
    values: (sample) => [sample.tokens_per_second],
    format: rate,
    text: (sample) => rate(sample.tokens_per_second),
  },
  {
    title: t("Time to the first token"),
    values: (sample) => [sample.first_token_ms],
    format: (ms) => (ms ? seconds(ms) : t("{time} s", { time: 0 })),
    text: (sample) => orNone(sample.first_token_ms, seconds),
  },
  {
    title: t("Prompt tokens per second"),
    values: (sample) => [sample.prompt_tokens_per_second],
    format: rate,
    text: (sample) => orNone(sample.prompt_tokens_per_second, rate),
  },
  {
    title: t("Prompt tokens from the cache"),
    values: (sample) => [sample.cache_hit_rate],
    format: (part) => percent(part),
    text: (sample) => orNone(sample.cache_hit_rate, (part) => percent(part)),
    max: 1,
  },
  {
    title: t("Memory and its budget"),
    values: (sample) => [sample.used, sample.budget],
    format: (size) => bytes(size),
    text: ({ used, budget }) => t("{part} of {whole}", { part: bytes(used), whole: bytes(budget) }),
  },
  {
    title: t("Python's memory"),
    values: (sample) => [sample.heap],
    format: (size) => bytes(size),
    text: ({ heap, heap_growth: growth }) =>
      growth > 0 ? t("{size}, {growth} more", { size: bytes(heap), growth: bytes(growth) }) : bytes(heap),
  },
];

const POOLS = /** @type {Record<string, Text>} */ ({
  weights: t("Weights"),
  kv: t("KV cache"),
  activations: t("Activations"),
  state: t("State"),
  projector: t("Projector"),
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
    const close = iconButton("close", t("Close the monitor"), () => this.toggle());
    const save = h(
      "button",
      { type: "button", class: "button", on: { click: () => this.#save() } },
      t("Save as JSON lines"),
    );
    this.#element = h(
      "aside",
      { class: "monitor", hidden: true, "aria-labelledby": "monitor-title" },
      h("div", { class: "monitor-head" }, h("h2", { id: "monitor-title" }, t("Monitor")), close),
      h(
        "div",
        { class: "monitor-body", tabIndex: 0, role: "group", "aria-label": t("Figures") },
        this.#warnings,
        h("div", { class: "figures" }, ...this.#plots.map(({ element }) => element)),
        this.#facts,
        h("h3", {}, t("KV cache by request")),
        this.#sequences,
        h("h3", {}, t("Memory of this model")),
        this.#pools,
        h("h3", {}, t("Time by kernel")),
        kernels(parts.wisp),
        h("h3", {}, t("What the engine did by itself")),
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
    new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme", "lang"] });
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
      ...fact(t("Model"), now.model ?? t("none")),
      ...fact(t("Requests"), number(now.requests)),
      ...fact(
        t("Tokens a step with drafts"),
        orNone(now.tokens_per_draft_step, (value) => number(value, { maximumFractionDigits: 2 })),
      ),
      ...fact(t("Download"), orNone(now.link, speed)),
    );
    const context = now.context_length ?? 0;
    const running = now.sequences.map(({ number: index, tokens, waits }) => {
      const which = { number: index + 1 };
      const name = waits ? t("Request {number}, waits", which) : t("Request {number}", which);
      return meter(name, tokens, context, t("{used} of {n} tokens", { used: tokens, n: context }));
    });
    this.#sequences.replaceChildren(...(running.length ? running : [h("p", { class: "note" }, t("No request runs."))]));
    this.#pools.replaceChildren(
      ...Object.entries(now.memory).map(([pool, size]) => meter(POOLS[pool] ?? pool, size, now.budget, bytes(size))),
    );
    this.#showReactions(now);
  }

  /** @param {Sample} now */
  #showReactions({ notices }) {
    const { reactions } = this.#parts;
    const lines = [
      ...reactions.map(({ time, text }) => joined([date(time, { timeStyle: "medium" }), text], " ")),
      ...notices.filter((notice) => !reactions.some(({ text }) => text.endsWith(notice))).map(translated),
    ];
    const items = (lines.length ? lines : [t("Nothing yet.")]).map((line) => h("li", { dir: "auto" }, line));
    if (lines.join() !== this.#reactions.dataset.shown) this.#reactions.replaceChildren(...items);
    this.#reactions.dataset.shown = lines.join();
  }

  #save() {
    saveFile("wisp-monitor.jsonl", [this.#earlier + (this.#monitor?.lines() ?? "")]);
  }
}

/** @param {Text} name @param {Text} value */
const fact = (name, value) => [h("dt", {}, name), h("dd", {}, value)];

/** @param {Text} name @param {number} value @param {number} max @param {Text} text */
function meter(name, value, max, text) {
  const bar = h("meter", { min: 0, max: Math.max(1, max), value, high: 0.8 * max, "aria-label": name });
  return h("div", { class: "meter" }, h("span", {}, name), bar, h("span", {}, text));
}
