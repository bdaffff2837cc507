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
  /** @type {CallCard[][]} the cards of each step's calls */
  #cards = [];
  /** @type {Step[]} the shown steps, as given last: each read of another tab's answer makes new objects */
  #steps = [];

  /** Shows steps that came, and what changed of their calls. @param {Step[]} steps @param {boolean} growing */
  show(steps, growing) {
    for (const step of steps.slice(this.#steps.length)) this.#add(step);
    this.#steps = [...steps];
    this.element.hidden = !steps.length;
    for (const [i, { calls }] of steps.entries())
      for (const [j, call] of calls.entries()) this.#cards[i][j].update(call, growing);
  }

  /** @param {Call} call */
  card(call) {
    const step = this.#steps.findIndex(({ calls }) => calls.includes(call));
    return this.#cards[step][this.#steps[step].calls.indexOf(call)];
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
    const cards = calls.map((call) => new CallCard(call));
    this.#cards.push(cards);
    this.element.append(...cards.map(({ element }) => element));
  }
}
