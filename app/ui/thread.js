/** Shows the messages of a conversation. Those near the view are in the document. */
import { t } from "../language/phrase.js";
import { AnswerView, showWholeAnswers } from "./answer/answer_view.js";
import { copyButton } from "./copy.js";
import { copyMessages } from "./copy_messages.js";
import { plainPieces } from "./markdown.js";
import { byId, h, iconButton } from "./dom.js";
import { columns, pickButton } from "./chats/pair.js";
import { patternOf } from "./chats/search/excerpt.js";
import { answered, firstSent, isOpen } from "./chats/turns.js";
import { RowWindow } from "./row_window.js";
import { isKey } from "./shortcuts.js";
import { mediaList } from "./media/views.js";

/**
 * @typedef {import("./chats/database.js").Message} Message
 * @typedef {import("./chats/conversation.js").Conversation} Conversation
 * @typedef {import("./row_window.js").Row & { messages?: Message[] }} Row
 *
 * @typedef {(item: HTMLElement, isOpen: boolean) => void} NoteEditor called when a question's editor is opened or closed
 *
 * @typedef {object} Actions
 * @property {(message: Message) => void} regenerate
 * @property {(message: Message, button: HTMLElement) => void} other answers again with another model
 * @property {() => void} continue
 * @property {(message: Message, text: string) => void} edit
 * @property {(message: Message, step: number) => void} switchVersion shows another version of a message
 * @property {(message: Message, word: number, token: number) => void} branch goes on from a word with another one
 */

const NOT_SENT = t(
  "The model does not see the messages above this line. A longer context, or a model with one, sees them again.",
);
const LINE = 26; // px
const FRAME = 64; // px of a message around its text
const CHARACTER = 8; // px
const WIDEST = 720; // px of a line
const LONGEST = 100_000; // characters of a question that the browser lays out at once

export class Thread {
  /** @type {Conversation | null} */
  #conversation = null;
  #list = byId("thread");
  #scroller = byId("scroller");
  #toEnd = byId("to-end");
  /** @type {Row[]} */
  #rows = [];
  /** @type {Row} */
  #line = {
    draw: () => h("li", { class: "not-sent", title: NOT_SENT }, t("not sent: the context is full")),
    height: LINE,
  };
  /** @type {Row | undefined} that was found last */
  #found;
  #pinned = true; // follow the newest line until the user scrolls up
  #lastTop = 0;
  #window;
  /** @type {WeakMap<Message, AnswerView>} of answers that grow */
  #views = new WeakMap();
  /** @type {Set<HTMLElement>} items whose question is being edited */
  #edited = new Set();
  /** @type {Row | null} two answers side by side */
  #pair = null;
  edited = () => {}; // called when an editor was closed

  /** @param {Actions} actions what the buttons under the last messages do */
  constructor(actions) {
    this.actions = actions;
    this.#scroller.addEventListener("scroll", () => this.#look(), { passive: true }); // before rows are drawn
    this.#window = new RowWindow(this.#scroller, this.#list, () => this.#follow());
    addEventListener("beforeprint", () => this.#print());
    addEventListener("afterprint", () => this.#window.setPrinting(false));
    new ResizeObserver(() => this.#follow()).observe(this.#list);
    const resized = new ResizeObserver(() => this.#follow());
    for (const element of [this.#scroller, byId("overlay")]) resized.observe(element);
    this.#toEnd.onclick = () => this.toEnd();
    document.addEventListener("copy", (event) => this.#copy(event));
  }

  /**
   * Shows a chat. The last answer may be about to be made: `answer()` adds it. Of a chat that is shown again, two answers
   * side by side stay so while they are its end.
   * @param {Conversation} conversation @param {Message} [coming]
   * @param {boolean} [stays] the chat is shown again, and a reader who is not at its end keeps the place
   */
  show(conversation, coming, stays = false) {
    const before = new Map(this.#rows.map((row) => [row.messages?.[0], row]));
    const place = stays && !this.#pinned ? this.#window.place() : undefined;
    this.#conversation = conversation;
    const { messages } = conversation;
    const pair = stays && this.#pair?.messages?.[0] === messages.at(-1) ? this.#pair : null;
    this.#pair = pair;
    this.#rows = messages
      .filter((message) => message !== coming)
      .map((message) => (pair?.messages?.[0] === message ? pair : this.#row(message)));
    if (place) for (const row of this.#rows) row.height = before.get(row.messages?.[0])?.height ?? row.height;
    this.#list.hidden = !messages.length;
    this.#edited.clear();
    this.#pinned = !place;
    this.#window.reset([...this.#rows]);
    this.markDropped(messages, messages.findLast(({ role }) => role === "assistant")?.dropped);
    const first = place && this.#rows.find(({ messages = [] }) => before.get(messages[0]) === place.row);
    if (place) showWholeAnswers(); // else the page is too short to scroll to the place while a long answer is drawn in pieces
    if (place && first) this.#window.moveTo(first, place.top);
    else if (!place) this.toEnd();
  }

  /** Whether the user edits a question. */
  get isEditing() {
    return this.#edited.size > 0;
  }

  /** The view of an answer that grows. @param {Message} message */
  viewOf(message) {
    return this.#views.get(message);
  }

  /** @param {Message} message */
  add(message) {
    this.#append(this.#row(message));
  }

  /** @param {Row} row */
  #append(row) {
    this.#list.hidden = false;
    this.#rows.push(row);
    this.#window.add(row);
  }

  /** @param {Message} message */
  #row(message) {
    /** @type {Row} */
    const row = {
      messages: [message],
      draw: () => this.#item(message),
      height: heightOf(message, this.#list.clientWidth),
    };
    if (!isOpen(message)) return row;
    const view = new AnswerView(message, this.actions, this.#versions(message)); // it grows wherever the reader is
    this.#views.set(message, view);
    return { ...row, element: view.element };
  }

  /** @param {Message} message */
  #item(message) {
    const versions = this.#versions(message);
    if (message.role === "user") return userItem(message, this.actions, versions, this.#noteEditor);
    return new AnswerView(message, this.actions, versions).element;
  }

  /** @type {NoteEditor} */
  #noteEditor = (item, isOpen) => {
    if (isOpen) this.#edited.add(item);
    else this.#edited.delete(item);
    if (!isOpen) this.edited();
  };

  /** Adds an answer that grows. @param {Message} message */
  answer(message) {
    this.add(message);
    return /** @type {AnswerView} */ (this.#views.get(message));
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
    this.#pair = { messages, draw: null, element: columns(views, names), height: FRAME };
    this.#append(this.#pair);
    return views;
  }

  /** The switch between the versions of a message; null: it has one. @param {Message} message */
  #versions(message) {
    const { index, count } = this.#conversation?.tree.version(message) ?? { index: 0, count: 1 };
    if (count < 2) return null;
    const isQuestion = message.role === "user";
    const step = (/** @type {number} */ by) => this.actions.switchVersion(message, by);
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
    this.#window.remove(this.#line);
    if (!dropped) return;
    const turns = answered(messages);
    const sent = turns[firstSent(turns, dropped)];
    const first = this.#rows.findIndex(({ messages = [] }) => messages.includes(sent));
    if (first > 0) this.#window.add(this.#line, first);
  }

  /** Goes to the message that has words of a search; each time to the next one. @param {string} sought */
  find(sought) {
    const pattern = patternOf(sought);
    const rows = this.#rows.filter(({ messages = [] }) => messages.some(({ content }) => pattern?.test(content)));
    if (!rows.length) return;
    this.#found = rows[(rows.indexOf(/** @type {Row} */ (this.#found)) + 1) % rows.length];
    this.#pinned = false;
    const element = this.#window.reveal(this.#found);
    if (!element) return;
    element.tabIndex = -1;
    element.focus({ preventScroll: true });
  }

  /** Copies a selection that has messages without elements. @param {ClipboardEvent} event */
  #copy(event) {
    const selection = getSelection();
    const isField = event.target instanceof Element && event.target.matches("input, textarea");
    if (isField || !selection?.rangeCount) return;
    const rows = /** @type {Row[]} */ (this.#window.covered(selection.getRangeAt(0)));
    if (rows.length) copyMessages(event, selection, rows);
  }

  /** Shows all messages whole: the browser lays out the print when this returns. */
  #print() {
    this.#window.setPrinting(true);
    showWholeAnswers();
  }

  toEnd() {
    this.#pinned = true;
    this.#follow();
    this.#look();
  }

  #follow() {
    if (!this.#rows.length) return; // the start page is shown from its beginning
    if (this.#pinned) {
      this.#scroller.scrollTop = this.#scroller.scrollHeight;
      this.#lastTop = this.#scroller.scrollTop; // now: a reader may scroll up before the event of this
    } else this.#look();
  }

  #look() {
    const { scrollTop, scrollHeight, clientHeight } = this.#scroller;
    if (scrollHeight - scrollTop - clientHeight < 48) this.#pinned = true;
    else if (scrollTop < this.#lastTop) this.#pinned = false;
    this.#lastTop = scrollTop;
    this.#toEnd.hidden = this.#pinned || !this.#rows.length; // the start page has no newest message
  }
}

/** An estimate of a message's height, in px. @param {Message} message @param {number} width of the list */
function heightOf({ content }, width) {
  const perLine = Math.max(10, Math.min(width || WIDEST, WIDEST) / CHARACTER);
  const lines = content.split("\n").reduce((sum, line) => sum + Math.ceil((line.length + 1) / perLine), 0);
  return FRAME + LINE * lines;
}

/** @param {Message} message @param {Actions} actions @param {HTMLElement | null} versions @param {NoteEditor} noteEditor */
function userItem(message, actions, versions, noteEditor) {
  const { content } = message;
  const isLong = content.length > LONGEST;
  const parts = isLong ? plainPieces(content) : [content];
  const bubble = content ? h("div", { class: isLong ? "bubble long" : "bubble", dir: "auto" }, ...parts) : null;
  const asked = h("div", { class: "asked" }, mediaList(message.media), bubble);
  const tools = h(
    "div",
    { class: "tools" },
    versions,
    bubble && copyButton(t("Copy your message"), () => message.content),
    iconButton("edit", t("Edit and send again"), () => editInPlace(item, message, actions, noteEditor)),
  );
  const item = h("li", { class: "message user" }, h("h2", { class: "hidden" }, t("You")), asked, tools);
  return item;
}

/** @param {HTMLElement} item @param {Message} message @param {Actions} actions @param {NoteEditor} noteEditor */
function editInPlace(item, message, actions, noteEditor) {
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
    noteEditor(item, false);
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
  noteEditor(item, true);
  field.focus();
}
