/** The steps of answers with tools, in requests: what the model said, its calls, and their results. */

/**
 * @typedef {import("./database.js").Message} Message
 * @typedef {import("./database.js").Call} Call
 * @typedef {import("./database.js").Step} Step
 * @typedef {{ role: string, content: any, tool_calls?: any[], tool_call_id?: string, name?: string }} Said
 */

const NOT_RUN = JSON.stringify({ error: "The answer was stopped before this ran." });
const NOT_ENDED = JSON.stringify({ error: "The answer was stopped while this ran. It may have done its work." });
const RESULT = 1 / 4; // of the context, in characters for each token, that one result may have
const MOST = 10_000; // characters of a result

/** Whether a message has something for the model. @param {import("./database.js").Draft} message */
export const saysSomething = ({ content, media, steps }) => Boolean(content || media?.length || steps?.length);

/** How many characters of a result the model is told. @param {number | null} context tokens */
export const resultLimit = (context) => (context ? Math.min(MOST, Math.floor(4 * context * RESULT)) : MOST);

/**
 * The steps of an answer as messages of a request. A call that never ended gets a result all the same: templates need one.
 * @param {Step[] | undefined} steps @param {number} limit characters of a result @returns {Said[]}
 */
export function saidIn(steps = [], limit = MOST) {
  return steps.flatMap(({ content, calls }) => [
    {
      role: "assistant",
      content,
      tool_calls: calls.map(({ id, name, arguments: args }) => ({
        id,
        type: "function",
        function: { name, arguments: args },
      })),
    },
    ...calls.map(({ id, name, state, text = state === "running" ? NOT_ENDED : NOT_RUN }) => ({
      role: "tool",
      tool_call_id: id,
      name,
      content: shortened(text, limit),
    })),
  ]);
}

/** A text without its middle, where it is too long. @param {string} text @param {number} limit characters */
function shortened(text, limit) {
  if (text.length <= limit) return text;
  const half = Math.floor(limit / 2);
  return `${text.slice(0, half)}\n[... ${text.length - 2 * half} characters left out ...]\n${text.slice(-half)}`;
}

/** The characters of an answer's steps, for estimates. @param {Step[] | undefined} steps */
export const textOfSteps = (steps) => (steps?.length ? JSON.stringify(saidIn(steps)) : "");
