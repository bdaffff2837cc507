/** One call of a tool: its arguments and result, folded; what it made; and the question whether it may run. */
import { t } from "../../language/phrase.js";
import { h } from "../dom.js";
import { fileLink, pictureList } from "../media/views.js";
import { announce } from "../notices.js";
import { say } from "../texts.js";
import { CodeBlock } from "./code_block.js";
import { isQuickSvg } from "./svg_picture.js";

/**
 * @typedef {import("../chats/database.js").Call} Call
 * @typedef {import("../../tools/registry.js").Offered} Offered
 * @typedef {"once" | "chat" | "always" | "no"} Choice what the user decides about a call
 */

/** @type {Record<string, import("../texts.js").Text>} by the state of a call, while its answer is being made */
const STATES = {
  asked: t("waits"),
  running: t("runs…"),
  done: t("done"),
  failed: t("failed"),
  refused: t("refused"),
};
const STOPPED = t("did not end");
/** @type {[Choice, import("../texts.js").Text][]} */
const CHOICES = [
  ["once", t("Allow once")],
  ["chat", t("Allow in this chat")],
  ["always", t("Always allow")],
  ["no", t("Refuse")],
];
/** @type {[boolean, import("../texts.js").Text][]} */
const CONFIRM = [
  [true, t("Allow once")],
  [false, t("Refuse")],
];
const MOST_OF_WHY = 200; // characters of an error beside a folded call
const PICTURE = /^image\/(png|jpeg|gif|webp)$/;
const SVG = "image/svg+xml";

export class CallCard {
  /** @type {import("../texts.js").Text} */
  #label = STATES.asked;
  #state = h("span", { class: "call-state" });
  #result = h("pre", { class: "call-result", tabIndex: 0, dir: "auto", hidden: true, "aria-label": t("Result") });
  #made = h("div", { class: "call-made" });
  #question = h("div", { class: "call-question", role: "group", hidden: true });
  #why = h("p", { class: "call-why", dir: "auto", hidden: true });
  #summary;
  #fold;

  /** @param {Call} call */
  constructor(call) {
    this.#summary = h("summary", {}, h("code", {}, call.name), " ", this.#state);
    this.#fold = h("details", {}, this.#summary, ...argumentsOf(call), this.#result);
    this.element = h("div", { class: "tool-call" }, this.#fold, this.#why, this.#question, this.#made);
  }

  /** @param {Call} call @param {boolean} growing its answer is being made */
  update({ state, text, files = [] }, growing) {
    this.element.dataset.state = state;
    this.#label = growing || text !== undefined ? STATES[state] : STOPPED;
    if (this.#question.hidden) say(this.#state, this.#label);
    if (text === undefined) return;
    this.#show(readable(text));
    this.#why.hidden = state !== "failed";
    this.#why.textContent = state === "failed" ? lineOf(readable(text)) : "";
    const pictures = files.filter(({ blob }) => PICTURE.test(blob.type));
    const others = files.filter((file) => !pictures.includes(file));
    const media = pictureList(pictures.map(picture));
    this.#made.replaceChildren(...(media ? [media] : []), ...others.map(madeFile));
  }

  /** Shows what a call that runs has written. @param {string} text */
  progress(text) {
    this.#show(text);
  }

  /** @param {string} text */
  #show(text) {
    this.#result.hidden = !text;
    this.#result.textContent = text;
  }

  /**
   * Asks whether the call may run, and shows its arguments. Rejects with the signal's reason.
   * @param {Offered} tool
   * @param {{ again: boolean, signal: AbortSignal, allowed: Promise<Choice> }} how `allowed`: resolves if another decision of the user allows the call
   * @returns {Promise<Choice>}
   */
  async ask(tool, { again, signal, allowed }) {
    const name = tool.title ?? tool.name;
    const text = t("May {tool} of “{source}” run with these arguments?", { tool: name, source: `${tool.source.name}` });
    const note = again ? h("p", { class: "more" }, t("The answer was stopped before: it may have run already.")) : null;
    this.#fold.open = true;
    try {
      return await this.#choose(text, note, CHOICES, signal, allowed);
    } finally {
      this.#fold.open = false;
    }
  }

  /** Asks something about a call that runs. Rejects with the signal's reason. @param {string} text @param {AbortSignal} signal */
  confirm(text, signal) {
    return this.#choose(text, null, CONFIRM, signal);
  }

  /**
   * @template C @param {import("../texts.js").Text} text @param {HTMLElement | null} note
   * @param {[C, import("../texts.js").Text][]} choices the first is the usual one @param {AbortSignal} signal
   * @param {Promise<C>} [elsewhere] a choice that another question makes @returns {Promise<C>}
   */
  async #choose(text, note, choices, signal, elsewhere) {
    signal.throwIfAborted();
    try {
      return await new Promise((resolve, reject) => {
        void elsewhere?.then(resolve);
        signal.addEventListener("abort", () => reject(signal.reason), { once: true });
        const buttons = choices.map(([choice, label], i) =>
          h(
            "button",
            { type: "button", class: i ? "button" : "button primary", on: { click: () => resolve(choice) } },
            label,
          ),
        );
        this.#question.replaceChildren(
          h("p", {}, text),
          ...(note ? [note] : []),
          h("div", { class: "row" }, ...buttons),
        );
        this.#question.hidden = false;
        say(this.#state, STATES.asked);
        announce(text);
      });
    } finally {
      if (this.#question.contains(document.activeElement)) this.#summary.focus({ preventScroll: true });
      this.#question.hidden = true;
      this.#question.replaceChildren();
      say(this.#state, this.#label);
    }
  }
}

/** @param {import("../../tools/registry.js").ToolFile} file */
const picture = ({ name, blob }) => ({ kind: /** @type {const} */ ("image"), name, blob });

/** A file to download; a drawing is shown once it is known to cost little. @param {import("../../tools/registry.js").ToolFile} file */
function madeFile(file) {
  const link = fileLink(file);
  if (file.blob.type === SVG)
    isQuickSvg(file.blob).then(
      (isQuick) => isQuick && link.replaceWith(.../** @type {Node[]} */ ([pictureList([picture(file)])])),
      () => {}, // it cannot be read
    );
  return link;
}

/** A result for the user: an error without the JSON that models get. @param {string} text */
function readable(text) {
  try {
    const { error, ...others } = Object(JSON.parse(text));
    return typeof error === "string" && !Object.keys(others).length ? error : text;
  } catch {
    return text;
  }
}

/** The last line of an error, without stack frames: code may print lines before it fails. @param {string} text */
function lineOf(text) {
  const lines = text.split("\n").filter((line) => line.trim() && !/^\s+at /.test(line));
  const line = lines.at(-1) ?? "";
  return line.length > MOST_OF_WHY ? `${line.slice(0, MOST_OF_WHY)}…` : line;
}

/** What a call was given: code as code, anything else as JSON. @param {Call} call */
function argumentsOf({ name, arguments: text }) {
  let given;
  try {
    given = JSON.parse(text);
  } catch {
    return [new CodeBlock(text, "", false).element];
  }
  const { code, ...others } = Object(given);
  const parts = typeof code === "string" ? [new CodeBlock(code, name, false).element] : [];
  const rest = parts.length ? others : given;
  if (!parts.length || Object.keys(rest).length)
    parts.push(new CodeBlock(JSON.stringify(rest, null, 2), "json", false).element);
  return parts;
}
