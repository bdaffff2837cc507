/**
 * What a page that closes has not stored yet. Its last transaction gets lost if it has to wait: for one of another tab, of
 * the import or of the page itself. So the same also goes to localStorage, which is written at once, and the next page, or
 * another tab, moves it to the database. Pictures and other files do not fit there; those that are stored already stay.
 */
import { isObject } from "../../storage/local_json.js";
import * as database from "./database.js";
import { CHAT, CHAT_OPTIONS, faultsOf, MESSAGE } from "./records.js";
import { isOpen } from "./turns.js";

/**
 * @typedef {import("./database.js").ChatInfo} ChatInfo
 * @typedef {import("./database.js").Message} Message
 *
 * @typedef {object} Late what is left of one chat
 * @property {ChatInfo} info
 * @property {Message[]} messages
 * @property {boolean} wasStored the database has the chat, unless another tab deletes it
 * @property {boolean} isDeleted
 */

const PREFIX = "wisp.closing.";
const PAGE = crypto.randomUUID(); // of the keys that this page writes

/** What is left to be stored, of all chats; what is added later counts. */
export class Rest {
  /** @type {Map<string, Late>} */
  #chats = new Map();

  get chats() {
    return [...this.#chats.values()];
  }

  /** @param {ChatInfo} info @param {Message[]} messages @param {boolean} wasStored */
  add(info, messages, wasStored) {
    const before = this.#chats.get(info.id);
    const numbers = new Set(messages.map(({ n }) => n));
    const others = before?.messages.filter(({ n }) => !numbers.has(n)) ?? [];
    const both = before && !before.isDeleted ? before.wasStored && wasStored : wasStored;
    this.#chats.set(info.id, { info, messages: [...others, ...messages], wasStored: both, isDeleted: false });
  }

  /** @param {ChatInfo} info */
  remove(info) {
    this.#chats.set(info.id, { info, messages: [], wasStored: true, isDeleted: true });
  }
}

/** @type {Map<string, string[]>} the keys of chats that this page has read, and could not store */
const unmoved = new Map();
/** @type {Set<string>} */
const written = new Set();

/** @param {string} _ @param {any} value */
const withoutBlobs = (_, value) => (value instanceof Blob ? undefined : value);

/** Writes what is left to localStorage. @param {Rest} rest */
export function keep({ chats }) {
  for (const chat of chats) {
    const { id } = chat.info;
    const key = `${PREFIX}${id}.${PAGE}`;
    try {
      localStorage.setItem(key, JSON.stringify(chat, withoutBlobs));
    } catch {
      continue; // it is too long
    }
    written.add(key);
    for (const older of unmoved.get(id) ?? []) localStorage.removeItem(older);
    unmoved.delete(id);
  }
}

/** Removes what this page has written, as it goes on, and what it has read and then stored. @param {Map<string, unknown>} unstored */
export function forgetWritten(unstored) {
  for (const key of written) localStorage.removeItem(key);
  written.clear();
  for (const [id, keys] of unmoved) {
    if (unstored.has(id)) continue;
    for (const key of keys) localStorage.removeItem(key);
    unmoved.delete(id);
  }
}

/** The keys of what closed pages have left. @returns {string[]} */
const left = () => Object.keys(localStorage).filter((key) => key.startsWith(PREFIX) && !written.has(key));

export const isAnythingLeft = () => left().length > 0;

/** Calls `then` when a page has closed and left something. @param {() => void} then */
export const onLeft = (then) =>
  window.addEventListener("storage", ({ key, newValue }) => key?.startsWith(PREFIX) && newValue && then());

/**
 * Moves what closed pages have left to the database, and tells this page of it as if another tab had stored it.
 * @param {(info: ChatInfo, messages: Message[]) => void} [held] gets the chats that cannot be stored
 */
export async function moveWhatIsLeft(held) {
  /** @type {unknown[]} */
  const errors = [];
  for (const key of left()) {
    const late = readable(localStorage.getItem(key));
    try {
      if (late) await move(late);
      localStorage.removeItem(key);
    } catch (error) {
      errors.push(error);
      if (!late || late.isDeleted || !held) continue;
      const { info, messages } = late;
      const stored = await database.readMessages(info.id).catch(() => []);
      const numbers = new Set(messages.map(({ n }) => n));
      held(
        info,
        [...stored.filter(({ n }) => !numbers.has(n)), ...messages].sort((a, b) => a.n - b.n),
      );
      unmoved.set(info.id, [...(unmoved.get(info.id) ?? []), key]);
    }
  }
  if (errors.length) throw errors[0];
}

/** @param {Late} late */
async function move({ info, messages, wasStored, isDeleted }) {
  const { id } = info;
  const before = await database.readChat(id);
  if (!before && wasStored) return; // another tab has deleted it
  const isOlder = before !== undefined && before.updated > info.updated;
  if (isDeleted) {
    if (isOlder) return; // another tab went on with it
    await database.deleteChat(id);
    return database.news.heard({ kind: "deleted", id });
  }
  const numbers = messages.map(({ n }) => n);
  const stored = new Map((await database.readMessages(id, numbers)).map((message) => [message.n, message]));
  const moved = messages.flatMap((message) => {
    const known = stored.get(message.n);
    if (known && (message.role === "user" || (isOlder && !isOpen(known)))) return []; // a question does not change
    return withFilesOf(message, known);
  });
  const entry = isOlder ? before : info;
  await database.saveChat(entry, moved);
  database.news.heard({ kind: "saved", info: entry, numbers });
}

/** A message with the files of calls that are stored of it, as it has none. @param {Message} message @param {Message} [known] @returns {Message} */
function withFilesOf({ media: _, steps, ...message }, known) {
  if (!steps) return message;
  /** @param {import("./database.js").Call} call @param {import("./database.js").Call} [stored] */
  const withFiles = ({ files: _, ...call }, stored) => ({ ...call, ...(stored?.files && { files: stored.files }) });
  const whole = steps.map((step, i) => ({
    ...step,
    calls: step.calls.map((call, j) => withFiles(call, known?.steps?.[i]?.calls[j])),
  }));
  return { ...message, steps: whole };
}

/** What is left of a chat; null: it is damaged. @param {string | null} text @returns {Late | null} */
function readable(text) {
  try {
    const late = JSON.parse(text ?? "");
    if (!isObject(late.info) || faultsOf(late.info, CHAT, CHAT_OPTIONS).length) return null;
    const isMessage = (/** @type {unknown} */ one) => isObject(one) && !faultsOf(one, MESSAGE, {}).length;
    return /** @type {Late} */ ({ ...late, messages: late.messages.filter(isMessage) });
  } catch {
    return null;
  }
}
