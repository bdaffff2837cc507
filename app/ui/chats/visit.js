/** How a visit begins and ends: with what closed pages have left, and with what this one leaves. */
import { isAnythingLeft, keep, moveWhatIsLeft, onLeft, Rest } from "./closing.js";
import { Conversation, making, tellInfos } from "./conversation.js";
import * as database from "./database.js";
import { isOpen } from "./turns.js";
import { unstored } from "./unstored.js";
import { writes } from "./writes.js";

/**
 * @typedef {import("./database.js").ChatInfo} ChatInfo
 * @typedef {import("./database.js").Message} Message
 */

/** Stores what is left while the page closes, when nothing can be awaited. @param {Conversation} shown */
export function storeAtOnce(shown) {
  const rest = new Rest();
  writes.tell(rest);
  tellInfos(rest);
  new Set([...unstored.values(), ...making, shown]).forEach((conversation) => conversation.tell(rest));
  keep(rest);
  try {
    database.saveAtOnce(rest.chats);
  } catch {
    // The database is closed, or fails: the next page has what is in localStorage.
  }
}

/**
 * Stores what closed pages have left. Resolves when it is stored, or could not be.
 * @param {Parameters<typeof moveWhatIsLeft>[0]} [held] gets the chats that could not
 */
function storeWhatIsLeft(held) {
  if (!isAnythingLeft()) return Promise.resolve();
  const nothing = () => {}; // it stays in localStorage meanwhile
  return writes.enqueue(() => moveWhatIsLeft(held), nothing);
}

onLeft(() => void storeWhatIsLeft());

/** Holds a chat that could not be stored. @param {ChatInfo} info @param {Message[]} messages */
function hold(info, messages) {
  for (const message of messages) if (isOpen(message)) message.finish = "stopped";
  unstored.set(info.id, new Conversation(info, messages));
}

/** Reads what the page shows first. @param {string | null} id of the chat */
export function readAtStart(id) {
  const { chat, messages, list } = database.readAtStart(id, storeWhatIsLeft(hold));
  return { chat: chat.then((info) => info ?? unstored.get(id ?? "")?.info), messages, list: list.then(withUnstored) };
}

/** All chats. @returns {Promise<ChatInfo[]>} the newest first */
export const listChats = () => database.listChats().then(withUnstored);

/** @param {ChatInfo[]} stored */
function withUnstored(stored) {
  const ids = new Set(stored.map(({ id }) => id));
  const others = [...unstored.values()].map(({ info }) => info).filter(({ id }) => !ids.has(id));
  return others.length ? [...others, ...stored].sort((a, b) => b.updated - a.updated) : stored;
}
