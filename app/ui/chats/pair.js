/** Two answers to one question, in columns; the user picks the one that the chat goes on with. */
import { t } from "../../language/phrase.js";
import { h } from "../dom.js";

/**
 * @typedef {import("./database.js").Message} Message
 * @typedef {import("../answer/answer_view.js").AnswerView} AnswerView
 */

const TEXTS = {
  both: t("Answers of two models"),
  pick: t("Go on with this answer"),
};

/** The button under an answer that picks it. @param {() => void} pick */
export const pickButton = (pick) =>
  h("button", { type: "button", class: "button pick", on: { click: pick } }, TEXTS.pick);

/** @param {AnswerView[]} views @param {string[]} names of their models */
export function columns(views, names) {
  views.forEach(({ element }, i) => element.prepend(h("p", { class: "answered-by" }, names[i])));
  const list = h("ol", { class: "columns", tabIndex: 0, "aria-label": TEXTS.both });
  list.append(...views.map(({ element }) => element));
  return h("li", { class: "pair" }, list);
}
