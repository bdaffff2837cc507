/** The measurements as tables and plots. */
import { h } from "../app/ui/dom.js";
import { bytes, rate, seconds } from "../app/ui/format.js";
import { bar, plot } from "./plot.js";

/** @typedef {import("./bench.js").Result} Result */

/** @param {Result} result @returns {HTMLElement[]} */
export function figures(result) {
  return [
    facts(result),
    prefill(result),
    decode(result),
    parallel(result),
    quality(result),
    ...kernels(result),
    ...skipped(result),
  ].filter((part) => part !== null);
}

/** @param {number} value */
const speed = (value) => (value >= 1000 ? Math.round(value).toLocaleString() : rate(value));

/** @param {number} ms */
const duration = (ms) => (ms < 10 ? `${ms.toFixed(2)} ms` : seconds(ms));

/** @param {Result} result */
function facts(result) {
  const { adapter, timings = {}, memory = {} } = result;
  const gpu = [adapter?.description || adapter?.vendor, adapter?.architecture].filter(Boolean).join(", ");
  const pools = { weights: "weights", kv: "KV cache", activations: "activations", wasm_heap: "Python's heap" };
  const parts = Object.entries(pools).filter(([key]) => memory[key]);
  /** @type {[string, string | undefined | false][]} */
  const rows = [
    ["Model", result.model],
    ["Runs on", result.backend === "webgpu" ? `WebGPU${gpu ? ` (${gpu})` : ""}` : "the CPU"],
    ["GPU features", adapter && result.backend === "webgpu" && features(adapter.features ?? [])],
    ["Loading", `${duration(result.load_ms)}, after ${duration(timings.boot_ms ?? 0)} of starting Python`],
    ["From the cache", result.upload && uploaded(result.upload)],
    ["Context", `${result.context_length.toLocaleString()} tokens`],
    ["Memory", parts.map(([key, name]) => `${name} ${bytes(memory[key])}`).join(", ")],
    ["Notes", (result.notices ?? []).join(" ")],
  ];
  const list = rows.flatMap(([term, value]) => (value ? [h("dt", {}, term), h("dd", {}, value)] : []));
  return h("dl", { class: "facts" }, ...list);
}

/** @param {import("./upload.js").Upload} upload */
function uploaded({ bytes: size, ms, per_second, write_buffer, share: part }) {
  const rates = [`${bytes(Math.round(per_second))}/s`];
  if (write_buffer && part)
    rates.push(`${Math.round(100 * part)}% of the GPU's bandwidth for uploads (${bytes(Math.round(write_buffer))}/s)`);
  return `${bytes(size)} in ${duration(ms)}: ${rates.join(", ")}`;
}

/** The features that change which kernels run. @param {string[]} names */
function features(names) {
  const relevant = names.filter((name) => /^(shader-f16|subgroups|timestamp-query|.*subgroup-matrix)$/.test(name));
  return relevant.length ? relevant.join(", ") : "none that matter here";
}

/** @param {string} title @param {string[]} heads @param {(string | HTMLElement)[][]} rows @param {...Node} more */
function table(title, heads, rows, ...more) {
  return h(
    "section",
    { class: more.length ? "figure with-plot" : "figure" },
    h("h3", {}, title),
    ...more,
    h(
      "div",
      { class: "wide", tabIndex: 0, role: "region", "aria-label": title },
      h(
        "table",
        {},
        h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
        h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, cell))))),
      ),
    ),
  );
}

/** @param {Result} result */
function prefill({ prefill: rows }) {
  if (!rows.length) return null;
  /** @param {any} row */
  const cells = (row) => [
    row.prompt.toLocaleString(),
    h("strong", {}, speed(row.per_second)),
    duration(row.ms),
    range(row),
  ];
  const points = rows.map((/** @type {any} */ row) => point(row.prompt, row));
  return table(
    "Reading a prompt",
    ["Tokens", "Tokens/s", "Time", "All runs"],
    rows.map(cells),
    plot("Prompt tokens per second by the prompt's length", points),
  );
}

/** @param {Result} result */
function decode({ decode: rows, backend }) {
  if (!rows.length) return null;
  const gpu = backend === "webgpu";
  /** @param {any} row */
  const cells = (row) => [
    row.context.toLocaleString(),
    h("strong", {}, speed(row.per_second)),
    duration(row.ms),
    range(row),
    ...(gpu ? [String(row.dispatches), row.submits.toFixed(2)] : []),
  ];
  const points = rows.map((/** @type {any} */ row) => point(row.context, row));
  const heads = ["Context", "Tokens/s", "A token", "All runs", ...(gpu ? ["Dispatches", "Submits"] : [])];
  return table("Writing", heads, rows.map(cells), plot("Tokens written per second by the context's length", points));
}

/** @param {Result} result */
function parallel({ together: rows = [] }) {
  if (!rows.length) return null;
  const cells = (/** @type {any} */ row) => [String(row.requests), h("strong", {}, speed(row.per_second)), range(row)];
  const points = rows.map((/** @type {any} */ row) => point(row.requests, row));
  const chart = plot("Tokens written per second for all requests, by their number", points);
  return table("Several requests at once", ["Requests", "Tokens/s, in sum", "All runs"], rows.map(cells), chart);
}

/** @param {Result} result */
function quality({ quality: found }) {
  if (!found) return null;
  const { file, perplexity, error, tokens, chunks, chunk } = found;
  const digits = (/** @type {number} */ value) => value.toLocaleString(undefined, { maximumFractionDigits: 4 });
  const row = [
    h("strong", {}, `${digits(perplexity)} ± ${digits(error)}`),
    tokens.toLocaleString(),
    `${chunks.toLocaleString()} × ${chunk}`,
    file,
  ];
  return table("Perplexity", ["Perplexity", "Tokens scored", "Chunks", "Text"], [row]);
}

/** @param {any} row */
const range = (row) => (row.runs > 1 ? `${speed(row.slowest)} to ${speed(row.fastest)}` : "one run");

/** @param {number} x @param {any} row */
const point = (x, row) => ({ x, y: row.per_second, low: row.slowest, high: row.fastest });

/** @param {Result} result @returns {HTMLElement[]} */
function kernels(result) {
  return Object.entries(result.kernels ?? {})
    .filter(([, times]) => times.length)
    .map(([name, times]) => {
      const total = times.reduce((/** @type {number} */ sum, /** @type {any} */ time) => sum + time.total_us, 0);
      const rows = times.map((/** @type {any} */ time) => [
        h("code", {}, time.kernel),
        String(time.count),
        micro(time.us),
        micro(time.total_us),
        share(time.total_us / total),
        bytes(time.bytes),
        perSecond(time.bytes, time.us, "B"),
        time.flops ? perSecond(time.flops, time.us, "FLOP") : "",
        micro(time.floor_us),
        fold(time.us / time.floor_us),
      ]);
      const heads = [
        "Kernel",
        "Times",
        "Each",
        "Together",
        "Share",
        "Moves",
        "Speed",
        "Computes",
        "Floor",
        "Of the floor",
      ];
      const body = table(`Kernels, ${name}: ${micro(total)}`, heads, rows);
      const title = body.querySelector("h3")?.textContent ?? name;
      body.querySelector("h3")?.remove();
      const step = result.steps?.[name];
      return h("details", { class: "figure" }, h("summary", {}, title), ...(step ? [whole(step)] : []), body);
    });
}

/** Breakdown of a whole step's time. @param {import("./bench.js").Step} step */
function whole({ us, kernels_us, wall_us, floor_us, bytes: size, dispatches }) {
  const apart = `${dispatches} dispatches, each by itself ${micro(kernels_us)}, one after the other ${micro(us)}`;
  const clock = wall_us === null ? "" : `; by the clock ${micro(wall_us)}`;
  const floor = `The floor (the least that this device needs for ${bytes(size)}) is ${micro(floor_us)}`;
  return h("p", { class: "note" }, `${apart}${clock}. ${floor}: the step takes ${fold(us / floor_us)} as long.`);
}

/** @param {number} amount @param {number} us @param {string} unit */
function perSecond(amount, us, unit) {
  const giga = us > 0 ? amount / us / 1000 : 0;
  return giga >= 1000 ? `${(giga / 1000).toFixed(1)} T${unit}/s` : `${giga.toFixed(giga < 10 ? 1 : 0)} G${unit}/s`;
}

/** @param {number} factor */
const fold = (factor) => (Number.isFinite(factor) ? `${factor.toFixed(factor < 10 ? 2 : 0)} ×` : "");

/** @param {number} us */
const micro = (us) => (us < 1000 ? `${us.toFixed(us < 10 ? 1 : 0)} µs` : `${(us / 1000).toFixed(us < 1e5 ? 2 : 0)} ms`);

/** @param {number} part */
function share(part) {
  const label = `${Math.round(100 * part)}%`;
  return h("span", { class: "share" }, bar(part), h("span", {}, label));
}

/** @param {Result} result @returns {HTMLElement[]} */
function skipped({ skipped: rows = [] }) {
  if (!rows.length) return [];
  const lines = rows.map((/** @type {any} */ { what, why }) => h("li", {}, `${what}: ${why}`));
  return [h("section", { class: "figure" }, h("h3", {}, "Not measured"), h("ul", { class: "note" }, ...lines))];
}
