/** Shows the messages of a conversation. */
import { sentences, t } from "../language/phrase.js";
import { adviceFor } from "./advice.js";
import { textWithTex } from "./answer/math.js";
import { explorer } from "./answer/explorer.js";
import { StepsView } from "./answer/steps_view.js";
import { toolCalls } from "./answer/tool_calls.js";
import { wordsOf } from "./answer/words.js";
import { copyButton } from "./copy.js";
import { byId, h, iconButton } from "./dom.js";
import { icon } from "./icons.js";
import { rate, seconds, tokens } from "./format.js";
import { columns, pickButton } from "./chats/pair.js";
import { answered, firstSent } from "./chats/turns.js";
import { LaterMessages } from "./later_messages.js";
import { isKey } from "./shortcuts.js";
import { Markdown } from "./markdown.js";
import { mediaList } from "./media/views.js";
import { showSources } from "./sources.js";
import { say } from "./texts.js";

/**
 * @typedef {import("./chats/database.js").Message} Message
 * @typedef {import("./chats/conversation.js").Conversation} Conversation
 *
 * @typedef {object} Actions
 * @property {(message: Message) => void} regenerate
 * @property {(message: Message, button: HTMLElement) => void} other answers again with another model
 * @property {() => void} continue
 * @property {(message: Message, text: string) => void} edit
 * @property {(message: Message, step: number) => void} turn shows another version
 * @property {(message: Message, word: number, token: number) => void} branch goes on from a word with another one
 */

const NOT_SENT = t(
  "The model does not see the messages above this line. A longer context, or a model with one, sees them again.",
);
const AT_ONCE = 20; // newest messages that are drawn when a chat is shown; earlier ones when one scrolls near
const BUSY = 4; // a long answer is rendered for a fifth of the time at most

export class Thread {
  /** @type {Conversation | null} */
  #conversation = null;
  #list = byId("thread");
  #scroller = byId("scroller");
  #toEnd = byId("to-end");
  #line = h("li", { class: "not-sent", title: NOT_SENT }, t("not sent: the context is full"));
  #pinned = true; // follow the newest line until the user scrolls up
  #lastTop = 0;
  #later;

  /** @param {Actions} actions what the buttons under the last messages do */
  constructor(actions) {
    this.actions = actions;
    this.#later = new LaterMessages(this.#scroller, (message) => this.#item(message));
    this.#scroller.addEventListener("scroll", () => this.#look(), { passive: true });
    new ResizeObserver(() => this.#follow()).observe(this.#list);
    new ResizeObserver(() => this.#follow()).observe(this.#scroller);
    this.#toEnd.onclick = () => this.toEnd();
  }

  /**
   * Shows a chat. The last answer may be about to be made: `answer()` adds it.
   * @param {Conversation} conversation @param {Message} [coming]
   */
  show(conversation, coming) {
    this.#conversation = conversation;
    const { messages } = conversation;
    this.#later.clear();
    const shown = messages.filter((message) => message !== coming);
    const items = shown.map((message, index) =>
      index < shown.length - AT_ONCE ? this.#later.item(message) : this.#item(message),
    );
    this.#list.replaceChildren(...items);
    this.markDropped(messages, messages.findLast(({ role }) => role === "assistant")?.dropped);
    this.toEnd();
  }

  /** @param {Message} message */
  add(message) {
    this.#list.append(this.#item(message));
  }

  /** @param {Message} message */
  #item(message) {
    const versions = this.#versions(message);
    if (message.role === "user") return userItem(message, this.actions, versions);
    return new AnswerView(message, this.actions, versions).element;
  }

  /** Adds an answer that grows. @param {Message} message */
  answer(message) {
    const view = new AnswerView(message, this.actions, this.#versions(message));
    this.#list.append(view.element);
    return view;
  }

  /**
   * Adds two answers that grow, side by side. Their buttons pick the answer first.
   * @param {Message[]} messages @param {string[]} names of their models @param {(message: Message) => void} pick
   */
  pair(messages, names, pick) {
    const views = messages.map((message) => {
      const continued = () => {
        pick(message);
        this.actions.continue();
      };
      return new AnswerView(
        message,
        { ...this.actions, continue: continued },
        pickButton(() => pick(message)),
      );
    });
    this.#list.append(columns(views, names));
    return views;
  }

  /** The switch between the versions of a message; null: it has one. @param {Message} message */
  #versions(message) {
    const { index, count } = this.#conversation?.tree.version(message) ?? { index: 0, count: 1 };
    if (count < 2) return null;
    const isQuestion = message.role === "user";
    const step = (/** @type {number} */ by) => this.actions.turn(message, by);
    const previous = isQuestion ? t("Previous version of the question") : t("Previous version of the answer");
    const next = isQuestion ? t("Next version of the question") : t("Next version of the answer");
    const before = iconButton("left", previous, () => step(-1));
    const after = iconButton("right", next, () => step(1));
    before.disabled = index === 0;
    after.disabled = index === count - 1;
    return h("span", { class: "versions" }, before, h("span", {}, `${index + 1}/${count}`), after);
  }

  /** Draws a line above the first message that was sent. @param {Message[]} messages all of the thread @param {number} [dropped] turns */
  markDropped(messages, dropped = 0) {
    this.#line.remove();
    const turns = answered(messages);
    const first = messages.indexOf(turns[firstSent(turns, dropped)]);
    if (dropped && first > 0) this.#list.querySelectorAll(":scope > .message")[first].before(this.#line);
  }

  toEnd() {
    this.#pinned = true;
    this.#follow();
    this.#look();
  }

  #follow() {
    if (this.#pinned) this.#scroller.scrollTop = this.#scroller.scrollHeight;
    else this.#look();
  }

  #look() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    if (scrollHeight - scrollTop - clientHeight < 48) this.#pinned = true;
    else if (scrollTop < this.#lastTop) this.#pinned = false;
    this.#lastTop = scrollTop;
    this.#toEnd.hidden = this.#pinned;
  }
}

/** @param {Message} message @param {Actions} actions @param {HTMLElement | null} versions */
function userItem(message, actions, versions) {
  const bubble = message.content ? h("div", { class: "bubble", dir: "auto" }, message.content) : null;
  const asked = h("div", { class: "asked" }, mediaList(message.media), bubble);
  const tools = h(
    "div",
    { class: "tools" },
    versions,
    bubble && copyButton(t("Copy your message"), () => message.content),
    iconButton("edit", t("Edit and send again"), () => editInPlace(item, message, actions)),
  );
  const item = h("li", { class: "message user" }, h("h2", { class: "hidden" }, t("You")), asked, tools);
  return item;
}

/** Whether an answer ended before it was complete, and the model may go on. @param {Message} message */
export function canContinue({ role, content, cut, steps, finish, upstream }) {
  if (role !== "assistant" || finish === "stop") return false;
  if (upstream && content) return false; // other servers may not know how to continue a text
  return Boolean(content || cut || steps?.length);
}

/** @param {HTMLElement} item @param {Message} message @param {Actions} actions */
function editInPlace(item, message, actions) {
  const before = [...item.children];
  const field = h("textarea", {
    value: message.content,
    rows: Math.min(8, message.content.split("\n").length + 1),
    dir: "auto",
    "aria-label": t("Edit your message"),
  });
  const cancel = () => {
    item.replaceChildren(...before);
    byId("prompt").focus();
  };
  const send = () => (field.value.trim() || message.media) && actions.edit(message, field.value.trim());
  field.addEventListener("keydown", (event) => {
    if (isKey("close", event)) {
      event.stopPropagation();
      cancel();
    }
    if (!isKey("send", event) || event.isComposing) return;
    event.preventDefault();
    send();
  });
  const row = h(
    "div",
    { class: "row" },
    h("button", { type: "button", class: "button", on: { click: cancel } }, t("Cancel")),
    h("button", { type: "button", class: "button primary", on: { click: send } }, t("Send")),
  );
  item.replaceChildren(before[0], h("div", { class: "editor" }, mediaList(message.media), field, row));
  field.focus();
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
    this.#frame ||= requestAnimationFrame((begun) => {
      this.#frame = 0;
      if (begun < this.#rest) return this.grow(/** @type {Message} */ (this.#message));
      const message = /** @type {Message} */ (this.#message);
      const { content, reasoning } = message;
      this.element.classList.toggle("waiting", !content && !reasoning && !isCalling(message));
      this.#think(message, !content);
      const started = performance.now();
      this.#markdown.render(content, true);
      const ended = performance.now();
      this.#rest = ended + BUSY * (ended - started);
    });
  }

  /** Shows a step that came, or what changed of a call. @param {Message} message */
  showSteps(message) {
    this.#steps.show(message.steps ?? [], true);
    this.grow(message);
  }

  /** The card of a call that showSteps() has shown. @param {import("./chats/database.js").Call} call */
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

  /** @param {Message} message with how it ended */
  finish(message) {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    this.element.classList.remove("growing", "waiting");
    this.#think(message, false);
    this.#markdown.render(message.content);
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

/** Whether a call of the last step has no result yet. @param {Message} message */
const isCalling = ({ steps }) => steps?.at(-1)?.calls.some(({ text }) => text === undefined) ?? false;

/** @param {{ message: string, code: string }} error */
function errorBox({ message, code }) {
  const more = adviceFor(code);
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
function statsLine({ stats, finish, budget }) {
  const parts = [];
  if (stats) {
    parts.push(
      t("{rate} tokens/s", { rate: rate(stats.perSecond) }),
      t("first token in {time}", { time: seconds(stats.firstMs) }),
      tokens(stats.tokens),
    );
  }
  if (finish === "stopped") parts.push(t("stopped"));
  if (finish === "length") parts.push(t("cut off"));
  if (budget) parts.push(budget === "turns" ? t("all turns used") : t("all tokens used"));
  const title = sentences(
    stats?.prompt &&
      t("{n} prompt tokens, {cached} of them reused from before.", { n: stats.prompt, cached: stats.cached ?? 0 }),
    finish === "length" && t("Cut off: the longest answer or the end of the context is reached."),
  );
  return h("p", { class: "stats", title, hidden: !parts.length }, ...parts.map((part) => h("span", {}, part)));
}
