/** Stores the conversations in IndexedDB. */
import { openDB } from "idb";

/**
 * @typedef {object} Stats of one answer
 * @property {number} tokens made
 * @property {number} perSecond tokens
 * @property {number} firstMs until the first token
 * @property {number} [cached] prompt tokens that were not computed again
 * @property {number} [prompt] prompt tokens
 *
 * @typedef {object} Cut what continues an answer exactly where it was cut, token by token
 * @property {Record<string, any>} request
 * @property {import("../sdk/journal.js").Journal} journal
 *
 * @typedef {object} Message
 * @property {"user" | "assistant"} role
 * @property {string} content
 * @property {string} [reasoning] what the model thought before it answered
 * @property {number} [thoughtMs] how long it thought
 * @property {import("./answer/words.js").Words} [words] with their probabilities, if they were asked for
 * @property {import("./answer/words.js").Trace} [trace] what it takes to branch from one of them
 * @property {import("./answer/tool_calls.js").ToolCall[]} [toolCalls] functions that it calls
 * @property {"stop" | "length" | "stopped" | "error"} [finish] why an answer ended
 * @property {{ message: string, code: string }} [error]
 * @property {Stats} [stats]
 * @property {string} [model] that answered
 * @property {import("../retrieval/prompt.js").Source[]} [sources] passages of documents that the model was given
 * @property {Cut} [cut] of the last answer, until it is complete
 * @property {string} [upstream] the server that it ran on: this message and those before it left the machine
 *
 * @typedef {object} Conversation
 * @property {string} id
 * @property {string} title
 * @property {number} created ms since 1970
 * @property {number} updated
 * @property {Message[]} messages
 */

const opened = openDB("wisp-page", 1, {
  upgrade(db) {
    db.createObjectStore("conversations", { keyPath: "id" }).createIndex("updated", "updated");
  },
});

/** @type {Awaited<typeof opened> | null} */
let database = null;
opened.then(
  (db) => (database = db),
  () => {}, // each read and write reports it
);

/** @returns {Conversation} */
export function newConversation() {
  const now = Date.now();
  return { id: crypto.randomUUID(), title: "", created: now, updated: now, messages: [] };
}

/** @returns {Promise<Conversation[]>} the newest first */
export async function allConversations() {
  return (await (await opened).getAllFromIndex("conversations", "updated")).reverse();
}

/** @param {Conversation} conversation */
export async function saveConversation(conversation) {
  await (await opened).put("conversations", conversation);
}

/** Stores a conversation while the page closes, when nothing can be awaited. @param {Conversation} conversation */
export function saveAtOnce(conversation) {
  const writing = database?.transaction("conversations", "readwrite");
  writing?.store.put(conversation).catch(() => {});
  writing?.commit();
}

/** @param {string} id */
export async function deleteConversation(id) {
  await (await opened).delete("conversations", id);
}

/** A title from the first question. @param {string} text */
export function titleOf(text) {
  const line = text.trim().replace(/\s+/g, " ");
  return line.length > 60 ? `${line.slice(0, 57).trimEnd()}…` : line;
}
