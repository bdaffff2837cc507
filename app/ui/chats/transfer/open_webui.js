/** Open WebUI's export: a list of {title, chat}, where chat.history.messages is a tree of messages by ids. */
import { t } from "../../../language/phrase.js";
import { attachmentMark, chatOf, idOf } from "./tree.js";

/** @param {any} entry */
export const isOpenWebUi = (entry) =>
  (entry?.chat?.history?.messages && typeof entry.chat.history.messages === "object") ||
  Array.isArray(entry?.chat?.messages);

/** @param {any} entry @returns {import("./tree.js").Stored} */
export function fromOpenWebUi({ id, title, chat, created_at, updated_at, pinned }) {
  const { history, messages, params } = chat;
  const list = history?.messages ? Object.values(history.messages) : messages;
  const nodes = list.map((/** @type {any} */ message, /** @type {number} */ index) =>
    nodeOf(message, index, list, !history),
  );
  const system = typeof params?.system === "string" ? params.system : undefined;
  const name = [title, chat.title].find((text) => typeof text === "string" && text) ?? `${t("Untitled")}`;
  const times = { created: seconds(created_at ?? chat.timestamp), updated: seconds(updated_at) };
  const about = { id: idOf("open-webui", id), title: name, ...times, system };
  const made = chatOf(about, nodes, history?.currentId);
  if (pinned === true) made.info.pinned = true;
  return made;
}

/**
 * @param {any} message @param {number} index @param {any[]} list @param {boolean} linear the messages follow each other
 * @returns {import("./tree.js").Node}
 */
function nodeOf(message, index, list, linear) {
  const idAt = (/** @type {number} */ at) => String(list[at]?.id ?? at);
  const { role, content, model, parentId } = message ?? {};
  const text = Array.isArray(content) ? content.map((part) => part?.text ?? attachmentMark()).join("\n\n") : content;
  const parent = linear ? (index ? idAt(index - 1) : null) : typeof parentId === "string" ? parentId : null;
  return {
    id: idAt(index),
    parent, // childrenIds are incomplete in some versions
    role: role === "user" || role === "assistant" ? role : null,
    content: typeof text === "string" ? text : "",
    ...(typeof model === "string" && model && { model }),
  };
}

/** Times are in seconds, in old versions in milliseconds. @param {unknown} time */
function seconds(time) {
  const number = Number(time) || 0;
  return number > 1e11 ? number / 1000 : number;
}
