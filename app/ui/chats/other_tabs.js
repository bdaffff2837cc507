/**
 * The same chats in several tabs: each shows what the others store, so that no tab overwrites what it does not know. A tab
 * holds a lock while it makes an answer; the others wait for the lock, and know then that the answer has ended.
 */
import { t } from "../../language/phrase.js";
import { notify } from "../notices.js";
import * as database from "./database.js";

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

/** Whether an answer of a chat is being made in some tab. @param {string} id */
export async function isAnswering(id) {
  const { held = [] } = (await locks?.query().catch(() => undefined)) ?? {};
  return held.some(({ name }) => name === lockOf(id));
}

export class OtherTabs {
  #chat;
  /** @type {Map<Message, AnswerView>} answers that other tabs are making */
  #growing = new Map();
  /** @type {Map<string, Stored>} by chats that were not shown: one of them was being read, perhaps */
  #missed = new Map();
  #waits = ""; // the chat whose answers are waited for

  /** @param {import("./chat.js").Chat} chat */
  constructor(chat) {
    this.#chat = chat;
    database.news.heard = (news) => {
      if (news.kind === "saved") void this.#saved(news.info, news.numbers);
      else if (news.kind === "deleted") this.#deleted(news.id);
      else void chat.reload();
    };
  }

  /** Shows a chat. Its last answer may be one that another tab is making. @param {Conversation} conversation */
  show(conversation) {
    const { thread } = this.#chat.parts;
    this.#growing.clear();
    const last = conversation.messages.at(-1);
    const coming = last?.role === "assistant" && !last.finish ? last : undefined;
    thread.show(conversation, coming);
    if (coming) this.#grow(coming);
    const missed = this.#missed.get(conversation.id);
    this.#missed.clear();
    if (missed) void this.#read(conversation, missed);
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
    const { busy, parts } = this.#chat;
    const before = conversation.messages;
    const { added, changed } = conversation.tree.merge(stored, (message) => busy && isOpen(message));
    if (!busy) conversation.tree.follow(shown);
    conversation.info.shown = conversation.tree.shown; // each tab shows the branch that it shows
    if (busy) return; // the answer that this tab makes stays where it is
    const { messages } = conversation;
    const goesOn = before.every((message, i) => message === messages[i]);
    const isKnown = changed.every((message) => this.#growing.has(message) || !messages.includes(message));
    const hasVersions = added.some((message) => !messages.includes(message));
    if (!goesOn || !isKnown || hasVersions) {
      if (!document.querySelector("#thread .editor")) this.show(conversation); // else what the user writes would be lost
      return;
    }
    for (const message of messages.slice(before.length))
      if (message.role === "user") parts.thread.add(message);
      else this.#grow(message);
    for (const message of changed) if (this.#growing.has(message)) this.#grow(message);
  }

  /** Shows an answer of another tab as far as it is stored. @param {Message} message */
  #grow(message) {
    const view = this.#growing.get(message) ?? this.#chat.parts.thread.answer(message);
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

  /** Has answers end as stopped that nobody makes any more: their tab was closed, or crashed. */
  async #waitForEnd() {
    const { conversation } = this.#chat;
    const { id } = conversation;
    if (!locks || this.#waits === id) return;
    this.#waits = id;
    await locks.request(lockOf(id), () => {}).catch(() => {});
    if (this.#waits === id) this.#waits = "";
    if (this.#chat.conversation !== conversation || this.#chat.busy) return;
    const open = conversation.tree.all.filter(isOpen).map(({ n }) => n);
    const stored = await database.readMessages(id, open).catch(() => []);
    for (const message of stored) message.finish ??= "stopped";
    if (this.#chat.conversation === conversation) this.#merge(conversation, stored, null);
    this.#chat.parts.changed();
  }

  /** @param {string} id */
  #deleted(id) {
    const chat = this.#chat;
    chat.all = chat.all.filter((other) => other.id !== id);
    if (chat.conversation.id === id) {
      chat.conversation.deleted = true;
      chat.startNew();
      notify({ key: "deleted elsewhere", text: t("This chat was deleted in another tab."), seconds: 8 });
    }
    chat.parts.changed();
  }
}

/** An answer that has not ended. @param {Message} message */
const isOpen = ({ role, finish }) => role === "assistant" && !finish;

/** An entry as another tab stored it, in the same object. @param {ChatInfo | undefined} known @param {ChatInfo} info @returns {ChatInfo} */
function replaced(known, info) {
  if (!known) return info;
  for (const name of Object.keys(known)) delete (/** @type {any} */ (known)[name]);
  return Object.assign(known, info);
}
