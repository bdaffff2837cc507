/** The steps of an answer with tools: what the model said before its calls, and the calls. */
import { t } from "../../language/phrase.js";
import { h } from "../dom.js";
import { seconds } from "../format.js";
import { Markdown } from "../markdown.js";
import { CallCard } from "./call_card.js";

/**
 * @typedef {import("../chats/database.js").Step} Step
 * @typedef {import("../chats/database.js").Call} Call
 */

export class StepsView {
  element = h("div", { class: "steps", role: "group", "aria-label": t("Function calls"), hidden: true });
  /** @type {Map<Call, CallCard>} */
  #cards = new Map();
  #steps = 0;

  /** Shows steps that came, and what changed of their calls. @param {Step[]} steps @param {boolean} growing */
  show(steps, growing) {
    for (const step of steps.slice(this.#steps)) this.#add(step);
    this.#steps = steps.length;
    this.element.hidden = !steps.length;
    for (const { calls } of steps) for (const call of calls) this.card(call).update(call, growing);
  }

  /** @param {Call} call */
  card(call) {
    return /** @type {CallCard} */ (this.#cards.get(call));
  }

  /** @param {Step} step */
  #add({ content, reasoning, thoughtMs, calls }) {
    if (reasoning) {
      const thought = thoughtMs ? t("Thought for {time}", { time: seconds(thoughtMs) }) : t("Thoughts");
      const text = h("p", { class: "thought-text", dir: "auto" }, reasoning);
      this.element.append(h("details", { class: "thought" }, h("summary", {}, thought), text));
    }
    if (content.trim()) {
      const body = h("div", { class: "body" });
      new Markdown(body).render(content);
      this.element.append(body);
    }
    for (const call of calls) {
      const card = new CallCard(call);
      this.#cards.set(call, card);
      this.element.append(card.element);
    }
  }
}
