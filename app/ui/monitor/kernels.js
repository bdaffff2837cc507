/** GPU time of a decode step by kernel, measured when the user asks for it. */
import { h } from "../dom.js";

/** @typedef {import("../../wisp.js").Wisp} Wisp */

const POSITION = 128; // in the context
const MOST = 8; // kernels

/** @param {() => Promise<Wisp>} engine */
export function kernels(engine) {
  const result = h("div", { role: "status" });
  const measure = async () => {
    button.disabled = true;
    result.replaceChildren(h("p", { class: "note" }, "Measuring…"));
    try {
      const wisp = await engine();
      const { context_length: context } = await wisp.stats();
      const dispatches = await wisp.profile(Math.max(0, Math.min(POSITION, (context ?? 0) - 65)));
      result.replaceChildren(table(dispatches));
    } catch (error) {
      result.replaceChildren(h("p", { class: "note" }, error instanceof Error ? error.message : String(error)));
    }
    button.disabled = false;
  };
  const button = h("button", { type: "button", class: "button", on: { click: measure } }, "Measure a token");
  return h("div", { class: "kernels" }, button, result);
}

/** @param {import("../../sdk/types.d.ts").Dispatch[]} dispatches */
function table(dispatches) {
  const whole = dispatches.find(({ kernel }) => kernel === "step")?.ns ?? 0;
  /** @type {Map<string, number>} */
  const times = new Map();
  for (const { kernel, ns } of dispatches) if (kernel !== "step") times.set(kernel, (times.get(kernel) ?? 0) + ns);
  const sorted = [...times].sort(([, a], [, b]) => b - a);
  const sum = sorted.reduce((total, [, ns]) => total + ns, 0);
  const rest = sorted.slice(MOST).reduce((total, [, ns]) => total + ns, 0);
  const rows = [...sorted.slice(0, MOST), ...(rest ? [/** @type {[string, number]} */ (["others", rest])] : [])];
  return h(
    "table",
    { class: "kernel-table" },
    h("caption", {}, `A step takes ${micro(whole)}; its kernels one by one ${micro(sum)}.`),
    h("tbody", {}, ...rows.map(([kernel, ns]) => row(kernel, ns, sum))),
  );
}

/** @param {string} kernel @param {number} ns @param {number} sum */
function row(kernel, ns, sum) {
  const cells = [h("td", {}, micro(ns)), h("td", {}, `${Math.round((100 * ns) / Math.max(1, sum))} %`)];
  return h("tr", {}, h("th", { scope: "row" }, kernel), ...cells);
}

/** @param {number} ns */
const micro = (ns) => (ns < 1e6 ? `${(ns / 1e3).toFixed(1)} µs` : `${(ns / 1e6).toFixed(2)} ms`);
