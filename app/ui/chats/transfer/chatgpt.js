/** ChatGPT's export: conversations.json, a list of conversations whose `mapping` is a tree of messages. */
import { t } from "../../../language/phrase.js";
import { attachmentMark, chatOf, idOf, textOf } from "./tree.js";

/** @param {any} entry */
export const isChatGpt = (entry) => isObject(entry?.mapping);

/** @param {any} conversation @returns {import("./tree.js").Stored} */
export function fromChatGpt({ id, conversation_id = id, title, create_time, update_time, mapping, current_node }) {
  const nodes = Object.entries(mapping).map(([id, node]) => nodeOf(id, node));
  const about = {
    id: idOf("chatgpt", conversation_id),
    title: textOf(title) || `${t("Untitled")}`,
    created: Number(create_time),
    updated: Number(update_time),
  };
  return chatOf(about, nodes, current_node);
}

/** @param {string} id @param {any} node @returns {import("./tree.js").Node} */
function nodeOf(id, node) {
  const { author, content, metadata, recipient } = node?.message ?? {};
  const parent = typeof node?.parent === "string" ? node.parent : null;
  const role = author?.role;
  const hidden = metadata?.is_visually_hidden_from_conversation || (recipient && recipient !== "all");
  if (content?.content_type === "thoughts") {
    const thoughts = Array.isArray(content.thoughts) ? content.thoughts : [];
    const reasoning = thoughts.map((/** @type {any} */ thought) => textOf(thought?.content)).join("\n\n");
    return { id, parent, role: null, content: "", reasoning };
  }
  const shown = (role === "user" || role === "assistant") && !hidden && isObject(content);
  if (!shown || content.content_type === "user_editable_context" || content.content_type === "reasoning_recap")
    return { id, parent, role: null, content: "" };
  const model = textOf(metadata?.model_slug);
  return { id, parent, role, content: contentOf(content), ...(model && { model }) };
}

/** @param {any} content */
function contentOf({ content_type, parts, text, language }) {
  if (content_type === "code") return `\`\`\`${textOf(language)}\n${textOf(text)}\n\`\`\``;
  if (!Array.isArray(parts)) return textOf(text);
  return parts
    .map((part) => (typeof part === "string" ? part : textOf(part?.text) || attachmentMark()))
    .join("\n\n")
    .trim();
}

/** @param {unknown} value */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
