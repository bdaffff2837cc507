/** Claude's export: conversations.json, a list of chats. `chat_messages` are in order, or name their parents. */
import { t } from "../../../language/phrase.js";
import { attachmentMark, chatOf, idOf, textOf } from "./tree.js";

const ROLES = new Map([
  ["human", /** @type {const} */ ("user")],
  ["assistant", /** @type {const} */ ("assistant")],
]);

/** @param {any} entry */
export const isClaude = (entry) => Array.isArray(entry?.chat_messages);

/** @param {any} conversation @returns {import("./tree.js").Stored} */
export function fromClaude({ uuid, name, created_at, updated_at, chat_messages, current_leaf_message_uuid }) {
  const nodes = chat_messages.map((/** @type {any} */ message, /** @type {number} */ index) => {
    const { parent_message_uuid, sender } = message ?? {};
    const before = index ? idAt(chat_messages, index - 1) : null;
    const parent = typeof parent_message_uuid === "string" ? parent_message_uuid : before;
    return { id: idAt(chat_messages, index), parent, role: ROLES.get(sender) ?? null, ...textsOf(message ?? {}) };
  });
  const about = {
    id: idOf("claude", uuid),
    title: textOf(name) || `${t("Untitled")}`,
    created: Date.parse(created_at) / 1000,
    updated: Date.parse(updated_at) / 1000,
  };
  return chatOf(about, nodes, current_leaf_message_uuid);
}

/** @param {any[]} messages @param {number} index */
const idAt = (messages, index) => textOf(messages[index]?.uuid) || `${index}`;

/** What a message says; `content` is missing in old exports. @param {any} message */
function textsOf({ text, content, attachments, files }) {
  const blocks = Array.isArray(content) ? content : [];
  const texts = (/** @type {string} */ type) =>
    blocks.filter((block) => block?.type === type).map((block) => textOf(block[type]));
  const attached = [attachments, files].flatMap((list) => (Array.isArray(list) ? list : []));
  const said = texts("text").filter((text) => text);
  const parts = [...attached.map(attachmentMark), ...(said.length ? said : [textOf(text)])];
  const reasoning = texts("thinking").join("\n\n");
  return { content: parts.join("\n\n").trim(), ...(reasoning && { reasoning }) };
}
