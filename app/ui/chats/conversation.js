/** One chat: its entry in the list and the tree of its messages. Stored as it changes, unless it is private. */
import { t } from "../../language/phrase.js";
import { whyNotStored } from "../../storage/failures.js";
import { withSpace } from "../../storage/space.js";
import { notify } from "../notices.js";
import * as database from "./database.js";
import { isAnswering } from "./other_tabs.js";
import { isDamaged } from "./records.js";
import { Tree } from "./tree.js";
import { isOpen } from "./turns.js";
import { unstored, unstoredInfos } from "./unstored.js";
import { writes } from "./writes.js";

/**
 * @typedef {import("./database.js").Message} Message
 * @typedef {import("./database.js").ChatInfo} ChatInfo
 * @typedef {import("./closing.js").Rest} Rest
 */

database.tabs.blocked = () =>
  notify({
    key: "tabs",
    text: t("Close the other tabs of Wisp."),
    more: t("They have an older version, which uses the chats."),
  });
database.tabs.replaced = () =>
  notify({
    key: "tabs",
    text: t("Reload this tab."),
    more: t("Another one has a newer version, which uses the chats now."),
  });

/** @type {Set<Conversation>} chats that this tab makes messages of */
export const making = new Set();
/** @type {Set<string>} the ids of chats that are being deleted */
const removed = new Set();

writes.succeeded = () => {
  unstored.forEach((conversation) => conversation.save([]));
  unstoredInfos.forEach(saveInfo);
};

/** Adds the entries of the list whose last write failed to what is left. @param {Rest} rest */
export const tellInfos = (rest) => unstoredInfos.forEach((info, id) => removed.has(id) || rest.add(info, [], true));

export class Conversation {
  #isStored = false;
  deleted = false; // while this tab goes on with it
  /** @type {Set<Message>} messages that this tab is making: other tabs have older versions */
  #own = new Set();
  #timesLost = database.timesLost();

  /** @param {ChatInfo} info @param {Message[]} [messages] */
  constructor(info, messages = []) {
    this.info = info;
    this.tree = new Tree(messages, info.shown);
  }

  /** A new chat. @param {boolean} [isPrivate] */
  static create(isPrivate = false) {
    const now = Date.now();
    const info = { id: crypto.randomUUID(), title: "", created: now, updated: now, shown: null };
    return new Conversation(isPrivate ? { ...info, private: true } : info);
  }

  /** Reads a chat. Answers that were being made when their tab ended are stopped. @param {ChatInfo} info @param {Promise<Message[]>} [reading] */
  static async read(info, reading) {
    await writes.done();
    const held = unstored.get(info.id);
    if (held) return Object.assign(held, { info });
    const messages = await (reading ?? database.readMessages(info.id));
    if (!(await isAnswering(info.id)))
      for (const message of messages) if (message.role === "assistant") message.finish ??= "stopped";
    const conversation = new Conversation(info, messages);
    conversation.#isStored = true;
    return conversation;
  }

  get id() {
    return this.info.id;
  }

  get title() {
    return this.info.title;
  }

  /** The messages of the shown branch. */
  get messages() {
    return this.tree.path();
  }

  /** Begins to make a message: until it ends, other tabs have older versions. @param {Message} message */
  begin(message) {
    this.#own.add(message);
    making.add(this);
  }

  /** @param {Message} message */
  end(message) {
    this.#own.delete(message);
    if (!this.isMaking) making.delete(this);
  }

  get isMaking() {
    return this.#own.size > 0;
  }

  /** Whether this tab is making a message. @param {Message} message */
  isOwn = (message) => this.#own.has(message);

  /** Whether another tab is making this answer: this tab has an older version. @param {Message} message */
  isElsewhere = (message) => isOpen(message) && !this.isOwn(message);

  /** Whether storage may lack messages that no later change stores. */
  get isBehind() {
    return unstored.has(this.id) || this.#timesLost !== database.timesLost();
  }

  /**
   * Stores the entry and what changed of the messages; all of them if storage may lack some.
   * @param {Message[]} messages @param {boolean} [growing]
   */
  save(messages, growing = false) {
    this.info.shown = this.tree.shown;
    if (this.info.private || removed.has(this.id)) return;
    const lacks = this.isBehind;
    const copy = structuredClone({ info: this.info, messages: lacks ? this.#storable : messages });
    const timesLost = database.timesLost();
    const write = async () => {
      try {
        const wasStored = await withSpace(() => database.saveChat(copy.info, copy.messages, growing));
        if (this.#isStored && !wasStored) await this.#restore(copy.info);
        this.#isStored = true;
        if (lacks) this.#timesLost = timesLost;
        if (lacks) unstored.delete(this.id); // else an earlier write, which failed meanwhile, had more
      } catch (error) {
        if (!this.deleted) unstored.set(this.id, this);
        throw error;
      }
    };
    writes.enqueue(write, (rest) => this.deleted || rest.add(copy.info, copy.messages, this.#isStored));
  }

  /** Stores all of a chat that another tab deleted while this one went on. Deletes it again if this tab knows of that. @param {ChatInfo} info */
  async #restore(info) {
    if (this.deleted) await database.deleteChat(info.id);
    else await database.saveChat(info, this.#storable);
  }

  /** Adds what this tab is making, and the other messages if storage may lack them. @param {Rest} rest */
  tell(rest) {
    if (this.info.private || this.deleted || removed.has(this.id) || !(this.isMaking || this.isBehind)) return;
    this.info.shown = this.tree.shown;
    rest.add(this.info, this.isBehind ? this.#storable : [...this.#own], this.#isStored);
  }

  /** All messages but answers that other tabs make, and damaged ones: another version of the page may read these. */
  get #storable() {
    return this.tree.all.filter((message) => !isDamaged(message) && !this.isElsewhere(message));
  }
}

/** Stores an entry of the list. @param {ChatInfo} info */
export function saveInfo(info) {
  if (info.private || removed.has(info.id)) return;
  const copy = structuredClone(info);
  unstoredInfos.delete(info.id);
  const write = async () => {
    try {
      const wasStored = await withSpace(() => database.saveChat(copy, []));
      if (wasStored || unstored.has(info.id) || database.timesLost()) return;
      await database.deleteChat(info.id); // another tab has deleted it meanwhile: it would be an entry without messages
    } catch (error) {
      unstoredInfos.set(info.id, info);
      throw error;
    }
  };
  void writes.enqueue(write, (rest) => rest.add(copy, [], true));
}

/** Says that a chat cannot be read. @param {unknown} error */
export function tellUnreadable(error) {
  const text = t("This chat cannot be read. The others are not affected.");
  notify({ key: "unreadable", text, more: `${error}`, kind: "error" });
}

/** Says that no chat can be read. @param {unknown} error */
export function tellNoChats(error) {
  const text = t("Chats can be neither read nor stored.");
  notify({ key: "storage", text, more: whyNotStored(error), kind: "error" });
}

/** Deletes a chat; resolves to a function that brings it back. @param {ChatInfo} info */
export async function remove(info) {
  /** @type {Message[]} */
  let messages = [];
  removed.add(info.id);
  for (const conversation of making) if (conversation.id === info.id) conversation.deleted = true;
  const forget = async () => {
    try {
      messages = unstored.get(info.id)?.tree.all ?? (await database.readMessages(info.id));
      unstored.delete(info.id);
      unstoredInfos.delete(info.id);
      await database.deleteChat(info.id);
    } finally {
      removed.delete(info.id);
    }
  };
  const deleted = writes.enqueue(forget, (rest) => rest.remove(info));
  return async () => {
    await deleted;
    const bringBack = () => withSpace(() => database.saveChat(info, messages));
    await writes.enqueue(bringBack, (rest) => rest.add(info, messages, false));
  };
}

/** A title from the first question. @param {string} text */
export function titleOf(text) {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length > 60 ? `${line.slice(0, 57).trimEnd()}…` : line;
}
