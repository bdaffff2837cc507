/** How an answer of a chat uses tools: the user is asked, and each change is shown and stored. */
import { allowAlways, allowedWith, isAllowed } from "../../tools/permissions.js";

/** @typedef {import("../../tools/registry.js").Offered} Tool */

/**
 * @param {import("./database.js").Message} message the answer
 * @param {{ conversation: import("./conversation.js").Conversation, view: import("../answer/answer_view.js").AnswerView,
 *   controller: AbortController, tools: Tool[] }} about
 * @returns {import("./agent.js").Using}
 */
export function usingTools(message, { conversation, view, controller: { signal }, tools }) {
  /** @type {Set<{ tool: Tool, allow: () => void }>} calls that wait for the user */
  const waiting = new Set();
  const allowOthers = () => {
    for (const { tool, allow } of waiting) if (isAllowed(tool, conversation.info)) allow();
  };
  return {
    offered: tools,
    chat: conversation.id,
    isPrivate: conversation.info.private ?? false,
    files: conversation.messages.flatMap(({ media = [] }) => media.filter(({ kind }) => kind !== "video")),
    async permit(call, tool, again) {
      if (!again && isAllowed(tool, conversation.info)) return true;
      const { promise: allowed, resolve } = Promise.withResolvers();
      const own = { tool, allow: () => resolve("once") };
      if (!again) waiting.add(own);
      const choice = await view
        .card(call)
        .ask(tool, { again, signal, allowed })
        .finally(() => waiting.delete(own));
      if (choice === "always") allowAlways(tool);
      if (choice === "chat") {
        Object.assign(conversation.info, allowedWith(tool, conversation.info));
        conversation.save([]);
      }
      allowOthers();
      return choice !== "no";
    },
    confirm: (call, question) => view.card(call).confirm(question, signal),
    changed() {
      view.showSteps(message);
      conversation.save([message], true);
    },
    progressed: (call, text) => view.card(call).progress(text),
  };
}
