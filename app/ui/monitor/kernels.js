/** Time of a decode step by kernel, measured when the user asks for it. */
import { number, t } from "../../language/phrase.js";
import { h } from "../dom.js";
import { percent } from "../format.js";

/** @typedef {import("../../wisp.js").Wisp} Wisp */
/** @typedef {import("../texts.js").Text} Text */

const POSITION = 128; // in the context
const MOST = 8; // kernels

/** @param {() => Promise<Wisp>} engine */
export function kernels(engine) {
  const result = h("div", { role: "status" });
  const measure = async () => {
    button.disabled = true;
    result.replaceChildren(h("p", { class: "note" }, t("Measuring…")));
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
  const button = h("button", { type: "button", class: "button", on: { click: measure } }, t("Measure a token"));
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
  /** @type {[Text, number][]} */
  const rows = [...sorted.slice(0, MOST), ...(rest ? [/** @type {[Text, number]} */ ([t("others"), rest])] : [])];
  return h(
    "table",
    { class: "kernel-table" },
    h(
      "caption",
      {},
      t("A step takes {whole}; its kernels one by one {sum}.", { whole: micro(whole), sum: micro(sum) }),
    ),
    h("tbody", {}, ...rows.map(([kernel, ns]) => row(kernel, ns, sum))),
  );
}

/** @param {Text} kernel @param {number} ns @param {number} sum */
function row(kernel, ns, sum) {
  const cells = [h("td", {}, micro(ns)), h("td", {}, percent(ns / Math.max(1, sum)))];
  return h("tr", {}, h("th", { scope: "row" }, kernel), ...cells);
}

/** @param {number} ns */
const micro = (ns) =>
  ns < 1e6
    ? t("{time} µs", { time: number(ns / 1e3, { maximumFractionDigits: 1 }) })
    : t("{time} ms", { time: number(ns / 1e6, { maximumFractionDigits: 2 }) });
