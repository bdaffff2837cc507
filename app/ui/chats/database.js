/** The chats in IndexedDB. The list is stored apart from the messages, so that it is read without them. */
import { reopened } from "../../storage/reopened.js";
import { readableInfo, readableMessages } from "./records.js";

/**
 * @typedef {object} Stats of one answer
 * @property {number} tokens made
 * @property {number} perSecond tokens
 * @property {number} firstMs until the first token
 * @property {number} [cached] prompt tokens that were not computed again
 * @property {number} [prompt] prompt tokens
 * @property {number | null} [context] tokens that the context held
 *
 * @typedef {object} Cut what continues an answer exactly where it was cut, token by token
 * @property {Record<string, any>} request
 * @property {import("../../sdk/journal.js").Journal} journal
 * @property {string} [begun] the answer's text before that request
 *
 * @typedef {object} Medium a picture, a sound or a video of a question, or a file for the tools that its answer uses
 * @property {"image" | "audio" | "video" | "file"} kind
 * @property {string} name of its file
 * @property {Blob} blob of a video: its pictures, one after the other
 * @property {number} [seconds] of a sound or a video
 * @property {{ seconds: number, bytes: number }[]} [frames] of a video: when each picture is shown, and its size
 * @property {number} [tokens] of a video, as counted for the model that was asked
 * @property {number[]} [peaks] of a sound: the loudest sample of each part, 0 to 1
 *
 * @typedef {object} Call of a tool, and what became of it
 * @property {string} id @property {string} name as the model calls it
 * @property {string} arguments JSON
 * @property {"asked" | "running" | "done" | "failed" | "refused"} state "asked": it did not run yet; "running": it began
 * @property {string} [text] what the model is told of its result
 * @property {import("../../tools/registry.js").ToolFile[]} [files] that it made
 *
 * @typedef {object} Step an answer's part that ended with calls
 * @property {string} content
 * @property {string} [reasoning]
 * @property {number} [thoughtMs]
 * @property {Call[]} calls
 *
 * @typedef {object} Draft a message that is not in a chat yet
 * @property {"user" | "assistant"} role
 * @property {string} content
 * @property {Medium[]} [media] of a question
 * @property {string} [reasoning] what the model thought before it answered
 * @property {number} [thoughtMs] how long it thought
 * @property {import("../answer/words.js").Words} [words] with their probabilities, if they were asked for
 * @property {import("../answer/words.js").Trace} [trace] what it takes to branch from one of them
 * @property {import("../answer/tool_calls.js").ToolCall[]} [toolCalls] functions that it calls, which nothing runs
 * @property {Step[]} [steps] of an answer with tools, before the rest of it
 * @property {"turns" | "tokens"} [budget] that ended an answer with tools
 * @property {"stop" | "length" | "stopped" | "error"} [finish] why an answer ended
 * @property {import("../advice.js").Explained} [error]
 * @property {Stats} [stats]
 * @property {string} [model] that answered
 * @property {number} [dropped] how many of the oldest turns the model was not given
 * @property {import("../../retrieval/prompt.js").Source[]} [sources] passages of documents that the model was given
 * @property {Cut} [cut] of the last answer, until it is complete
 * @property {string} [upstream] the server that it ran on: this message and those before it left the machine
 *
 * @typedef {Draft & { n: number, parent: number | null }} Message `n`: its number in the chat; `parent`: the number of the
 *   message that it follows. Messages with the same parent are versions of each other.
 *
 * @typedef {object} Assistant a preset
 * @property {string} id
 * @property {string} name
 * @property {Partial<import("../settings.js").Settings>} settings
 *
 * @typedef {object} ChatInfo what the list has of a chat
 * @property {string} id
 * @property {string} title
 * @property {"user" | "model"} [titledBy] who changed the title
 * @property {number} created ms since 1970
 * @property {number} updated
 * @property {number | null} shown the last message of the shown branch
 * @property {boolean} [pinned]
 * @property {string} [folder]
 * @property {boolean} [private] it is never stored
 * @property {Partial<import("../settings.js").Settings>} [settings] of this chat alone
 * @property {Assistant} [assistant] as it was when it was chosen
 * @property {string[]} [tools] the ids of the sources of tools that its answers may use
 * @property {string[]} [allowed] tools that run in it without asking; tools/permissions.js
 */

const VERSION = 2;

/**
 * What other tabs do: `blocked`: an older version of the page has the database open; `replaced`: a newer one takes it, after
 * what `last` stores.
 */
export const tabs = { blocked: () => {}, replaced: () => {}, last: () => {} };

/**
 * @typedef {{ kind: "saved", info: ChatInfo, numbers: number[] } | { kind: "deleted", id: string } | { kind: "imported" }} News
 *   what another tab has stored or deleted; `numbers`: of the stored messages
 */
const channel = new BroadcastChannel("wisp-chats");
/** `heard` is called with what other tabs store. @type {{ heard: (news: News) => void }} */
export const news = { heard: () => {} };
channel.onmessage = ({ data }) => news.heard(data);

/** @param {News} news */
const tellOthers = (news) => channel.postMessage(news);

/** @param {ChatInfo} info @param {Message[]} messages */
const tellSaved = (info, messages) => tellOthers({ kind: "saved", info, numbers: messages.map(({ n }) => n) });

const open = reopened("wisp-page", VERSION, {
  async upgrade(db, before, _, transaction) {
    const chats = db.createObjectStore("chats", { keyPath: "id" });
    const messages = db.createObjectStore("messages", { keyPath: ["chat", "n"] });
    const unindexed = db.createObjectStore("unindexed", { keyPath: "id" }); // chats that the search index lacks
    db.createObjectStore("index", { keyPath: "segment", autoIncrement: true });
    if (before !== 1) return;
    // Version 1 had one record for a chat with all its messages.
    for await (const { value } of transaction.objectStore("conversations")) {
      const { messages: old, ...info } = value;
      const list = Array.isArray(old) ? old : [];
      chats.put({ ...info, shown: list.length ? list.length - 1 : null });
      list.forEach((message, n) => messages.put({ ...message, chat: info.id, n, parent: n ? n - 1 : null }));
      unindexed.put(markOf(info.id));
    }
    db.deleteObjectStore("conversations");
  },
  blocked: () => tabs.blocked(),
  blocking() {
    tabs.last();
    database = null;
    tabs.replaced();
  },
  terminated() {
    database = null;
    losses++;
  },
});

/** @type {Awaited<ReturnType<typeof open>> | null} */
let database = null;
let losses = 0;

/** The open database. */
export const opened = async () => (database = await open());

/** How often the browser has closed the database by itself. What was stored before may be gone. */
export const timesLost = () => losses;

opened().catch(() => {}); // each read and write reports it

/** Says that the search index lacks a chat; `mark` differs at each change. @param {string} id */
const markOf = (id) => ({ id, mark: crypto.randomUUID() });

/** Says that a chat's last message grew at a time, after which the index got nothing. @param {string} id */
const growthOf = (id) => ({ ...markOf(`growth:${id}`), chat: id, at: Date.now() });

/** Awaits no single write: where one fails, its transaction does. @param {Promise<unknown>} write */
const request = (write) => void write.catch(() => {});

/**
 * Has the search index get a chat: soon, or, while its last message grows, when that ends or has not grown for a while.
 * @param {import("idb").IDBPTransaction<any, any, "readwrite">} transaction @param {string} id @param {boolean} [growing]
 */
function mark(transaction, id, growing = false) {
  const store = transaction.objectStore("unindexed");
  if (growing) return request(store.put(growthOf(id)));
  request(store.put(markOf(id)));
  request(store.delete(growthOf(id).id));
}

/** The key range of a chat's messages. @param {string} id */
const messagesOf = (id) => IDBKeyRange.bound([id], [id, []]);

/**
 * The records of a store. One that the browser has lost has its key alone.
 * @param {"chats" | "messages"} store @param {IDBKeyRange} [range] @returns {Promise<any[]>}
 */
async function readAll(store, range) {
  const db = await opened();
  try {
    return await db.getAll(store, range);
  } catch {
    const keys = await db.getAllKeys(store, range);
    const lost = (/** @type {any} */ key) => (store === "chats" ? { id: key } : { chat: key[0], n: key[1] });
    return Promise.all(keys.map((key) => db.get(store, key).catch(() => lost(key))));
  }
}

/** @returns {Promise<ChatInfo[]>} the newest first */
export async function listChats() {
  return (await readAll("chats")).map(readableInfo).sort((a, b) => b.updated - a.updated);
}

/** @param {string} id @returns {Promise<ChatInfo | undefined>} */
export async function readChat(id) {
  const [info] = await readAll("chats", IDBKeyRange.only(id));
  return info && readableInfo(info);
}

/**
 * The messages of a chat, or some of them.
 * @param {string} id @param {number[]} [numbers] @returns {Promise<Message[]>} in the order of their numbers
 */
export async function readMessages(id, numbers) {
  const ranges = numbers?.map((n) => IDBKeyRange.only([id, n])) ?? [messagesOf(id)];
  const stored = (await Promise.all(ranges.map((range) => readAll("messages", range)))).flat();
  return readableMessages(stored.map(({ chat, ...message }) => message));
}

/**
 * Reads what the page shows first: a chat, its messages and the list. All are asked for at once, in the order in which they
 * are needed.
 * @param {string | null} id of the chat; null: there is none @param {Promise<unknown>} ready what must be stored before
 */
export function readAtStart(id, ready) {
  const chat = ready.then(() => (id ? readChat(id) : undefined));
  const messages = id ? ready.then(() => readMessages(id)) : undefined;
  const list = ready.then(listChats);
  for (const reading of [messages, list]) reading?.catch(() => {}); // the caller's await still rejects
  return { chat, messages, list };
}

/**
 * Stores what changed of a chat. Resolves to whether the chat was stored before.
 * @param {ChatInfo} info @param {Message[]} messages @param {boolean} [growing] the last message is not complete: the search
 *   index gets it later
 */
export async function saveChat(info, messages, growing = false) {
  const transaction = (await opened()).transaction(["chats", "messages", "unindexed"], "readwrite");
  const before = transaction.objectStore("chats").getKey(info.id);
  request(before);
  put(transaction, info, messages);
  mark(transaction, info.id, growing);
  transaction.commit(); // else a page that goes away before it has heard of the writes loses them
  await transaction.done;
  tellSaved(info, messages);
  return (await before) !== undefined;
}

const STEP = 200; // chats, after which saveChats() says how far it is

/**
 * Stores several chats, such as imported ones, all or none.
 * @param {{ info: ChatInfo, messages: Message[] }[]} chats @param {(done: number) => void} tell
 * @param {AbortSignal} signal ends it; one that comes while the last chats are committed is too late
 */
export async function saveChats(chats, tell, signal) {
  const transaction = (await opened()).transaction(["chats", "messages", "unindexed"], "readwrite");
  try {
    for (const [index, { info, messages }] of chats.entries()) {
      signal.throwIfAborted();
      put(transaction, info, messages);
      mark(transaction, info.id);
      if (index % STEP !== STEP - 1) continue;
      await transaction.objectStore("chats").getKey(info.id); // comes when what was asked for before is done
      tell(index + 1);
    }
    signal.throwIfAborted();
    await transaction.done;
    tellOthers({ kind: "imported" });
  } catch (error) {
    try {
      transaction.abort(); // else what came before is committed
    } catch {
      // A write that failed has aborted it: storage is full, perhaps.
    }
    await transaction.done.catch(() => {});
    throw transaction.error ?? error; // why that write failed: those after it only tell that they were aborted
  }
}

/**
 * Stores chats while the page closes, when nothing can be awaited: all in one transaction, as one that waits for another may
 * get lost.
 * @param {{ info: ChatInfo, messages: Message[], isDeleted: boolean }[]} chats
 */
export function saveAtOnce(chats) {
  const writing = chats.length ? database?.transaction(["chats", "messages", "unindexed"], "readwrite") : undefined;
  if (!writing) return;
  writing.done.catch(() => {});
  for (const { info, messages, isDeleted } of chats) {
    if (isDeleted) discard(writing, info.id);
    else put(writing, info, messages);
    mark(writing, info.id);
  }
  writing.commit();
  for (const { info, messages, isDeleted } of chats)
    if (isDeleted) tellOthers({ kind: "deleted", id: info.id });
    else tellSaved(info, messages);
}

/** @param {string} id */
export async function deleteChat(id) {
  const transaction = (await opened()).transaction(["chats", "messages", "unindexed"], "readwrite");
  discard(transaction, id);
  mark(transaction, id);
  await transaction.done;
  tellOthers({ kind: "deleted", id });
}

/**
 * @param {import("idb").IDBPTransaction<any, any, "readwrite">} transaction @param {ChatInfo} info @param {Message[]} messages
 */
function put(transaction, info, messages) {
  request(transaction.objectStore("chats").put(info));
  for (const message of messages) request(transaction.objectStore("messages").put({ ...message, chat: info.id }));
}

/** @param {import("idb").IDBPTransaction<any, any, "readwrite">} transaction @param {string} id */
function discard(transaction, id) {
  request(transaction.objectStore("chats").delete(id));
  request(transaction.objectStore("messages").delete(messagesOf(id)));
}
