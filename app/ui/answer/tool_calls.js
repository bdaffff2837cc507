/** The functions that an answer calls: put together from its chunks, and shown with their arguments. */
import { t } from "../../language/phrase.js";
import { h } from "../dom.js";

/** @typedef {{ id: string, name: string, arguments: string }} ToolCall `arguments`: JSON, perhaps not complete yet */

/**
 * Adds what a chunk says of tool calls.
 * @param {ToolCall[] | undefined} calls @param {{ index: number, id?: string, function?: Partial<ToolCall> }[]} deltas @returns {ToolCall[]}
 */
export function withCalls(calls = [], deltas) {
  for (const { index, id, function: part } of deltas) {
    const call = (calls[index] ??= { id: "", name: "", arguments: "" });
    call.id ||= id ?? "";
    call.name += part?.name ?? "";
    call.arguments += part?.arguments ?? "";
  }
  return calls;
}

/** @param {ToolCall[]} calls */
export function toolCalls(calls) {
  const items = calls.map((call) => {
    const summary = h("summary", {}, t("Calls"), " ", h("code", {}, call.name));
    return h(
      "details",
      { class: "tool-call" },
      summary,
      h("pre", { tabIndex: 0, dir: "ltr" }, h("code", {}, readable(call.arguments))),
    );
  });
  return h("div", { class: "tool-calls", role: "group", "aria-label": t("Function calls") }, ...items);
}

/** @param {string} json */
function readable(json) {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
