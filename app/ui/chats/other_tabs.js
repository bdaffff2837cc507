/**
 * The same chats in several tabs. Each tab shows what the others store, so that none overwrites what it does not know. A
 * tab holds a lock while it makes an answer. The others wait for the lock, which tells them that the answer has ended.
 */
import { t } from "../../language/phrase.js";
import { notify } from "../notices.js";
import * as database from "./database.js";
import { isOpen } from "./turns.js";
import { unstored, unstoredInfos } from "./unstored.js";

/**
 * @typedef {import("./database.js").Message} Message
 * @typedef {import("./database.js").ChatInfo} ChatInfo
 * @typedef {import("./conversation.js").Conversation} Conversation
 * @typedef {import("../answer/answer_view.js").AnswerView} AnswerView
 * @typedef {{ numbers: number[], shown: number | null }} Stored messages, and the last one that the other tab shows
 */

const { locks } = navigator;

/** @param {string} id of a chat */
const lockOf = (id) => `wisp-answer ${id}`;

/** Tells other tabs that an answer of a chat is being made, until `work` ends. @template T @param {string} id @param {Promise<T>} work */
export function answering(id, work) {
  locks?.request(lockOf(id), { mode: "shared" }, () => work.catch(() => {})).catch(() => {});
  return work;
}

/** Whether some tab is making an answer of a chat. It may still wait for its lock. @param {string} id */
export async function isAnswering(id) {
  const { held = [], pending = [] } = (await locks?.query().catch(() => undefined)) ?? {};
  return [...held, ...pending].some(({ name, mode }) => name === lockOf(id) && mode === "shared");
}

export class OtherTabs {
  #chat;
  /** @type {Map<Message, AnswerView>} answers that other tabs are making */
  #growing = new Map();
  /** @type {Map<string, Stored>} by chat: what was stored of chats that were not shown, as one of them may be being read */
  #missed = new Map();
  /** @type {WeakSet<Conversation>} whose lock this tab waits for */
  #waiting = new WeakSet();
  #isLate = false; // another tab stored what the thread does not show yet
  /** @type {number | null} the last message that another tab showed meanwhile */
  #lateShown = null;

  /** @param {import("./chat.js").Chat} chat */
  constructor(chat) {
    this.#chat = chat;
    database.news.heard = (news) => {
      if (news.kind === "saved") void this.#saved(news.info, news.numbers);
      else if (news.kind === "deleted") this.#deleted(news.id);
      else void chat.reload();
    };
  }

  /**
   * Shows a chat, with the answers that other tabs are making.
   * @param {Conversation} conversation @param {Message} [coming] an answer that this tab begins: `thread.answer()` adds it
   */
  show(conversation, coming) {
    this.#draw(conversation, coming);
    if (coming) return;
    const missed = this.#missed.get(conversation.id);
    this.#missed.clear();
    if (missed) void this.#read(conversation, missed);
  }

  /** Shows what other tabs stored while this one made an answer or its user edited a question. Keeps the reader's place. */
  showLate() {
    const { busy, conversation, parts } = this.#chat;
    if (!this.#isLate || busy || conversation.isMaking || parts.thread.isEditing) return;
    conversation.tree.follow(this.#lateShown);
    conversation.info.shown = conversation.tree.shown;
    this.#draw(conversation, undefined, true);
  }

  /** @param {Conversation} conversation @param {Message} [coming] @param {boolean} [stays] where the reader is */
  #draw(conversation, coming, stays = false) {
    const { thread } = this.#chat.parts;
    this.#isLate = false;
    this.#lateShown = null;
    this.#growing.clear();
    thread.show(conversation, coming, stays);
    for (const message of conversation.messages)
      if (message !== coming && isOpen(message)) this.#grow(message, thread.viewOf(message));
  }

  /** @param {ChatInfo} info @param {number[]} numbers of the messages that were stored */
  async #saved(info, numbers) {
    const chat = this.#chat;
    const isShown = chat.conversation.id === info.id;
    const known = isShown ? chat.conversation.info : chat.all.find(({ id }) => id === info.id);
    const others = chat.all.filter(({ id }) => id !== info.id);
    chat.all = [...others, replaced(known, info)].sort((a, b) => b.updated - a.updated);
    if (isShown) await this.#read(chat.conversation, { numbers, shown: info.shown });
    else
      this.#missed.set(info.id, {
        numbers: [...(this.#missed.get(info.id)?.numbers ?? []), ...numbers],
        shown: info.shown,
      });
    chat.parts.changed();
  }

  /** @param {Conversation} conversation @param {Stored} stored */
  async #read(conversation, { numbers, shown }) {
    const messages = await database.readMessages(conversation.id, [...new Set(numbers)]).catch(() => []);
    if (this.#chat.conversation === conversation) this.#merge(conversation, messages, shown);
  }

  /** @param {Conversation} conversation @param {Message[]} stored @param {number | null} shown in the other tab */
  #merge(conversation, stored, shown) {
    const { parts } = this.#chat;
    const busy = this.#chat.busy || conversation.isMaking;
    const before = conversation.messages;
    const { added, changed } = conversation.tree.merge(stored, conversation.isOwn);
    if (!busy) conversation.tree.follow(shown);
    conversation.info.shown = conversation.tree.shown; // each tab stays at its own branch
    const { messages } = conversation;
    const goesOn = before.every((message, i) => message === messages[i]);
    const isKnown = changed.every((message) => this.#growing.has(message) || !messages.includes(message));
    const hasVersions = added.some((message) => !messages.includes(message));
    for (const message of changed) if (this.#growing.has(message)) this.#grow(message);
    this.#isLate ||= !goesOn || !isKnown || hasVersions;
    if (this.#isLate) {
      this.#lateShown = shown ?? this.#lateShown;
      return this.showLate();
    }
    for (const message of messages.slice(before.length))
      if (isOpen(message)) this.#grow(message);
      else parts.thread.add(message);
  }

  /**
   * Shows an answer of another tab as far as it is stored.
   * @param {Message} message @param {AnswerView} [view]
   */
  #grow(message, view = this.#growing.get(message) ?? this.#chat.parts.thread.answer(message)) {
    if (message.finish) {
      this.#growing.delete(message);
      view.finish(message);
      return;
    }
    this.#growing.set(message, view);
    if (message.steps) view.showSteps(message);
    view.grow(message);
    void this.#waitForEnd();
  }

  /** Waits until no tab makes an answer; ends those without an end as stopped, as their tab was closed or crashed. */
  async #waitForEnd() {
    const { conversation } = this.#chat;
    const { id } = conversation;
    if (!locks || this.#waiting.has(conversation)) return;
    this.#waiting.add(conversation);
    do await locks.request(lockOf(id), () => {}).catch(() => {});
    while (this.#chat.conversation === conversation && (await isAnswering(id)));
    this.#waiting.delete(conversation);
    if (this.#chat.conversation !== conversation) return;
    for (const message of this.#growing.keys()) if (message.finish) this.#grow(message); // one that this tab had stopped
    const open = conversation.tree.all.filter(conversation.isElsewhere).map(({ n }) => n);
    const stored = await database.readMessages(id, open).catch(() => []);
    for (const message of stored) message.finish ??= "stopped";
    if (this.#chat.conversation === conversation) this.#merge(conversation, stored, null);
    this.#chat.parts.changed();
  }

  /** @param {string} id */
  #deleted(id) {
    const chat = this.#chat;
    chat.all = chat.all.filter((other) => other.id !== id);
    const held = unstored.get(id);
    if (held) held.deleted = true;
    unstored.delete(id);
    unstoredInfos.delete(id);
    if (chat.conversation.id === id) {
      chat.conversation.deleted = true;
      chat.startNew();
      notify({ key: "deleted elsewhere", text: t("This chat was deleted in another tab."), seconds: 8 });
    }
    chat.parts.changed();
  }
}

/** Takes over a chat's entry as another tab stored it, into the same object. @param {ChatInfo | undefined} known @param {ChatInfo} info @returns {ChatInfo} */
function replaced(known, info) {
  if (!known) return info;
  for (const name of Object.keys(known)) delete (/** @type {any} */ (known)[name]);
  return Object.assign(known, info);
}
