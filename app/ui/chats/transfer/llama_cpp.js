/** The export of llama.cpp's web UI: {conv, messages}, or a list of these. Its messages are a tree under a root message. */
import { t } from "../../../language/phrase.js";
import { attachmentMark, chatOf, idOf, textOf } from "./tree.js";

/** @param {any} entry */
export const isLlamaCpp = (entry) =>
  typeof entry?.conv === "object" && entry.conv !== null && Array.isArray(entry.messages);

/** @param {any} entry @returns {import("./tree.js").Stored} */
export function fromLlamaCpp({ conv, messages }) {
  const times = messages.map((/** @type {any} */ message) => Number(message?.timestamp)).filter(Number.isFinite);
  const about = {
    id: idOf("llama.cpp", conv.id),
    title: textOf(conv.name) || `${t("Untitled")}`,
    created: times[0] / 1000,
    updated: Number(conv.lastModified) / 1000,
    system: messages.map(systemOf).find((/** @type {string} */ text) => text),
  };
  return chatOf(about, messages.map(nodeOf), keyOf(conv.currNode));
}

/** @param {any} message @returns {import("./tree.js").Node} */
function nodeOf(message) {
  const { id, parent, type, role, content, reasoningContent, thinking, model, extra } = message ?? {};
  const attached = (Array.isArray(extra) ? extra : []).map(attachmentMark);
  const reasoning = textOf(reasoningContent) || textOf(thinking); // the name of older versions
  const isShown = type !== "root" && (role === "user" || role === "assistant");
  return {
    id: keyOf(id) ?? "",
    parent: keyOf(parent),
    role: isShown ? role : null,
    content: [...attached, textOf(content)].join("\n\n").trim(),
    ...(isShown && reasoning && { reasoning }),
    ...(textOf(model) && { model: textOf(model) }),
  };
}

/** @param {any} message */
const systemOf = (message) => (message?.role === "system" && message.type !== "root" ? textOf(message.content) : "");

/** An id, which is a number in old versions. @param {unknown} id */
const keyOf = (id) => (typeof id === "string" || typeof id === "number" ? `${id}` : null);
