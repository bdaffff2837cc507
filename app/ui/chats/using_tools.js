/** How an answer of a chat uses tools: the user is asked, and each change is shown and stored. */
import { allowAlways, allowedWith, isAllowed } from "../../tools/permissions.js";

/**
 * @param {import("./database.js").Message} message the answer
 * @param {{ conversation: import("./conversation.js").Conversation, view: import("../answer/answer_view.js").AnswerView,
 *   controller: AbortController, tools: import("../../tools/registry.js").Offered[] }} about
 * @returns {import("./agent.js").Using}
 */
export function usingTools(message, { conversation, view, controller: { signal }, tools }) {
  return {
    offered: tools,
    chat: conversation.id,
    isPrivate: conversation.info.private ?? false,
    files: conversation.messages.flatMap(({ media = [] }) => media),
    async permit(call, tool, again) {
      if (!again && isAllowed(tool, conversation.info)) return true;
      const choice = await view.card(call).ask(tool, { again, signal });
      if (choice === "always") allowAlways(tool);
      if (choice === "chat") {
        Object.assign(conversation.info, allowedWith(tool, conversation.info));
        conversation.save([]);
      }
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
