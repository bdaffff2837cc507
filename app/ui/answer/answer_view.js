/** One answer in the thread, which may still be growing. */
import { sentences, t } from "../../language/phrase.js";
import { adviceFor } from "../advice.js";
import { copyButton } from "../copy.js";
import { h, iconButton } from "../dom.js";
import { moment, rate, seconds, tokens } from "../format.js";
import { icon } from "../icons.js";
import { Markdown } from "../markdown.js";
import { showSources } from "../sources.js";
import { say } from "../texts.js";
import { explorer } from "./explorer.js";
import { textWithTex, typesetWaiting } from "./math.js";
import { StepsView } from "./steps_view.js";
import { toolCalls } from "./tool_calls.js";
import { wordsOf } from "./words.js";

/**
 * @typedef {import("../chats/database.js").Message} Message
 * @typedef {import("../thread.js").Actions} Actions
 */

const SLICE_MS = 60; // of a frame, for the blocks of an answer: a very long one is shown in pieces
const BUSY = 4; // a long answer that grows is rendered for a fifth of the time at most

/** @type {Set<AnswerView>} whose text is not shown to its end yet */
const partial = new Set();

/** Shows every answer to its end at once, to be printed. */
export function showWholeAnswers() {
  for (const view of [...partial]) view.showWhole();
  typesetWaiting(Infinity);
}

/** Whether an answer ended before it was complete, and the model may go on. @param {Message} message */
export function canContinue({ role, content, cut, steps, finish, upstream }) {
  if (role !== "assistant" || finish === "stop") return false;
  if (upstream && content) return false; // other servers may not know how to continue a text
  return Boolean(content || cut || steps?.length);
}

export class AnswerView {
  #thought = h("p", { class: "thought-text", dir: "auto" });
  #thoughtFor = h("summary");
  #thinking = h("details", { class: "thought", hidden: true }, this.#thoughtFor, this.#thought);
  #open = false;
  #steps = new StepsView();
  #body = h("div", { class: "body" });
  #calls = h("div");
  #foot = h("div", { class: "foot" });
  #markdown = new Markdown(this.#body);
  #frame = 0;
  #rest = 0; // time before which nothing is rendered
  /** @type {Message | null} */
  #message = null;
  /** @type {((ms: number) => void) | null} goes on with finish() */
  #finishes = null;

  /** @param {Message} message @param {Actions} actions @param {HTMLElement | null} versions */
  constructor(message, actions, versions) {
    this.actions = actions;
    this.versions = versions;
    this.element = h(
      "li",
      { class: "message assistant" },
      h("h2", { class: "hidden" }, t("Answer")),
      this.#steps.element,
      this.#thinking,
      this.#body,
      this.#calls,
      this.#foot,
    );
    if (message.finish) this.finish(message);
    else this.element.classList.add("growing", "waiting");
  }

  /** Shows the text so far, at most once per frame, and so that most of the time is left. @param {Message} message */
  grow(message) {
    this.#message = message;
    partial.add(this);
    this.#frame ||= requestAnimationFrame((begun) => {
      this.#frame = 0;
      if (begun < this.#rest) this.grow(/** @type {Message} */ (this.#message));
      else this.#showSoFar(/** @type {Message} */ (this.#message), SLICE_MS);
    });
  }

  /** @param {Message} message @param {number} ms that its text may take */
  #showSoFar(message, ms) {
    const { content, reasoning } = message;
    const started = performance.now();
    this.element.classList.toggle("waiting", !content && !reasoning && !isCalling(message));
    this.#think(message, !content);
    const isWhole = this.#markdown.render(content, true, ms);
    this.#rest = Infinity;
    afterFrame(() => {
      const ended = performance.now();
      this.#rest = ended + BUSY * (ended - started);
    });
    if (isWhole) partial.delete(this);
    else this.grow(message);
  }

  /** Shows at once what the next frames would show. */
  showWhole() {
    if (this.#finishes) this.#finishes(Infinity);
    else if (this.#message) this.#showSoFar(this.#message, Infinity);
  }

  /** Shows a step that came, or what changed of a call. @param {Message} message */
  showSteps(message) {
    this.#steps.show(message.steps ?? [], true);
    this.grow(message);
  }

  /** The card of a call that showSteps() has shown. @param {import("../chats/database.js").Call} call */
  card(call) {
    return this.#steps.card(call);
  }

  /** @param {Message} message @param {boolean} open while there is nothing else to read */
  #think({ reasoning, thoughtMs }, open) {
    this.#thinking.hidden = !reasoning;
    if (!reasoning) return;
    this.#thought.textContent = reasoning;
    const thought = thoughtMs ? t("Thought for {time}", { time: seconds(thoughtMs) }) : t("Thoughts");
    say(this.#thoughtFor, open ? t("Thinking…") : thought);
    if (this.#open !== open) this.#thinking.toggleAttribute("open", open); // otherwise the reader decides
    this.#open = open;
  }

  /**
   * @param {Message} message with how it ended @param {() => void} [shown] is called once all of it is shown
   * @param {number} [ms] that its text may take now; the next frames show the rest
   */
  finish(message, shown = () => {}, ms = SLICE_MS) {
    cancelAnimationFrame(this.#frame);
    this.#finishes = (ms) => this.finish(message, shown, ms);
    partial.add(this);
    if (!this.#markdown.render(message.content, false, ms)) {
      this.#frame = requestAnimationFrame(() => this.#finishes?.(SLICE_MS));
      return;
    }
    partial.delete(this);
    this.#finishes = null;
    this.#frame = 0;
    this.element.classList.remove("growing", "waiting");
    this.#think(message, false);
    this.#steps.show(message.steps ?? [], false);
    if (message.toolCalls) this.#calls.replaceChildren(toolCalls(message.toolCalls));
    if (message.sources) this.#foot.before(showSources(this.#body, message.content, message.sources));
    const other = iconButton("swap", t("Answer with another model"), () => this.actions.other(message, other));
    other.setAttribute("aria-haspopup", "menu");
    const tools = h(
      "div",
      { class: "tools" },
      this.versions,
      message.content ? copyButton(t("Copy the answer"), () => message.content) : null,
      message.words && message.trace ? this.#wordsButton(message) : null,
      canContinue(message)
        ? iconButton("forward", t("Continue the answer"), () => this.actions.continue(), "icon-button only-last")
        : null,
      iconButton("again", t("Answer again"), () => this.actions.regenerate(message)),
      other,
    );
    this.#foot.replaceChildren(...[awayMark(message), statsLine(message)].filter((part) => part !== null), tools);
    if (message.error) this.#foot.before(errorBox(message.error));
    shown();
  }

  /** A button that shows the words with their probabilities instead of the text. @param {Message} message */
  #wordsButton(message) {
    const { words, trace } = /** @type {Required<Message>} */ (message);
    /** @type {HTMLElement | null} */
    let shown = null;
    const choose = (/** @type {number} */ word, /** @type {number} */ id) => this.actions.branch(message, word, id);
    const toggle = () => {
      shown?.remove();
      shown = shown ? null : explorer(wordsOf(words, trace), choose);
      if (shown) this.#body.before(shown);
      this.#body.hidden = shown !== null;
      button.setAttribute("aria-pressed", String(shown !== null));
    };
    const button = iconButton("words", t("Words and their probabilities"), toggle);
    button.setAttribute("aria-pressed", "false");
    return button;
  }

  /** The finished answer's text for screen readers. */
  get spoken() {
    return this.#body.querySelector(".katex") ? textWithTex(this.#body) : this.#body.innerText;
  }
}

/** Calls a function after the layout of the frame that is being made. @param {() => void} then */
function afterFrame(then) {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => {
    port1.close();
    then();
  };
  port2.postMessage(null);
}

/** Whether a call of the last step has no result yet. @param {Message} message */
const isCalling = ({ steps }) => steps?.at(-1)?.calls.some(({ text }) => text === undefined) ?? false;

/** @param {import("../advice.js").Explained} error */
function errorBox({ message, code, until }) {
  const more = until ? t("The server asks to wait until {time}.", { time: moment(until) }) : adviceFor(code);
  const text = h("div", {}, h("strong", { dir: "auto" }, message), more ? h("span", { class: "more" }, more) : null);
  return h("div", { class: "answer-error", role: "group", "aria-label": t("Error"), "data-code": code }, text);
}

/** Says that this answer was not made on this machine. @param {Message} message */
function awayMark({ upstream }) {
  if (!upstream) return null;
  const title = t("This chat left this computer: {server} answered.", { server: upstream });
  return h(
    "span",
    { class: "badge away", title },
    icon("away"),
    h("span", { class: "hidden" }, t("Answered by"), " "),
    upstream,
  );
}

/** @param {Message} message */
function statsLine({ stats, finish, budget, content, reasoning, steps, toolCalls }) {
  const parts = [];
  if (stats) {
    if (stats.perSecond) parts.push(t("{rate} tokens/s", { rate: rate(stats.perSecond) })); // 0: it came at once
    parts.push(t("first token in {time}", { time: seconds(stats.firstMs) }), tokens(stats.tokens));
  }
  if (finish === "stopped") parts.push(t("stopped"));
  if (finish === "length") parts.push(t("cut off"));
  if (finish === "stop" && !(content || reasoning || steps || toolCalls)) parts.push(t("empty answer"));
  if (budget) parts.push(budget === "turns" ? t("all turns used") : t("all tokens used"));
  const title = sentences(
    stats?.prompt &&
      t("{n} prompt tokens, {cached} of them reused from before.", { n: stats.prompt, cached: stats.cached ?? 0 }),
    finish === "length" && t("Cut off: the longest answer or the end of the context is reached."),
  );
  return h("p", { class: "stats", title, hidden: !parts.length }, ...parts.map((part) => h("span", {}, part)));
}
