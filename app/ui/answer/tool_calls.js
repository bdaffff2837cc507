/** The functions that an answer calls, shown with their arguments. */
import { t } from "../../language/phrase.js";
import { h } from "../dom.js";

/** @typedef {{ id: string, name: string, arguments: string }} ToolCall `arguments`: JSON, perhaps not complete yet */

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
