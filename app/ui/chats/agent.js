/** An answer with tools: turns of the model, and between them the calls that it makes. Each is stored as it happens. */
import { agentLoop, argumentsOf, toldOf, toldOfError } from "../../sdk/agent_loop.js";
import { isBack, isLeft } from "../leaving.js";
import { stream } from "./answer.js";

/**
 * @typedef {import("./database.js").Message} Message
 * @typedef {import("./database.js").Call} Call
 * @typedef {import("../../tools/registry.js").Offered} Offered
 * @typedef {import("../../tools/registry.js").ToolResult} ToolResult
 *
 * @typedef {object} Using
 * @property {Offered[]} offered the tools that the model may call
 * @property {string} chat its id
 * @property {boolean} isPrivate nothing of it is stored
 * @property {import("../../tools/registry.js").ToolFile[]} files that the user has attached to it
 * @property {(call: Call, tool: Offered, again: boolean) => Promise<boolean>} permit whether a call may run; `again`: it may
 *   have run already, before the answer was stopped, so that the user must be asked
 * @property {(call: Call, question: string) => Promise<boolean>} confirm asks the user something about a call that runs
 * @property {() => void} changed a step or a call changed: show and store it
 * @property {(call: Call, text: string) => void} progressed shows what a call is doing
 */

const BUDGET = { maxTurns: 8, maxTokens: 16_384 };
const REFUSED = toldOfError("The user did not allow this call. Do not repeat it; go on without it, or ask the user.");

/**
 * Answers with tools. A message that was stopped goes on: results that it has stay, and calls without one are asked for.
 * Rejects as stream() does.
 * @param {Message} message @param {Message[]} history @param {import("./answer.js").Asked} asked @param {Using} using
 */
export async function answerWithTools(message, history, asked, using) {
  const steps = (message.steps ??= []);
  delete message.budget;
  if (steps.length) using.changed();
  const pending = steps.flatMap(({ calls }) => calls.filter(({ text }) => text === undefined));
  await Promise.all(pending.map((call) => runCall(call, using, asked.signal, true)));
  const tools = using.offered.map(({ called, description, parameters }) => ({
    type: "function",
    function: { name: called, description, parameters },
  }));
  /** @param {{ turn: number, last: boolean, left: number | undefined }} turn */
  const ask = async ({ turn, last, left = BUDGET.maxTokens }) => {
    const own = asked.settings.max_tokens;
    const settings = { ...asked.settings, max_tokens: turn === 1 ? own : Math.min(left, own ?? left) };
    const fields = tools.length ? { tools, ...(last && { tool_choice: "none" }) } : undefined;
    const tokens = await stream(message, history, { ...asked, settings, tools: fields });
    const calls = (message.toolCalls ?? []).map(callOf);
    return { calls, tokens, cut: message.finish === "length" };
  };
  const run = async (/** @type {Call[]} */ calls) => {
    const { content, reasoning, thoughtMs } = message;
    steps.push({ content, ...(reasoning && { reasoning, thoughtMs }), calls });
    message.content = "";
    for (const name of /** @type {const} */ ([
      "toolCalls",
      "reasoning",
      "thoughtMs",
      "finish",
      "cut",
      "words",
      "trace",
    ]))
      delete message[name];
    using.changed();
    await Promise.all(calls.map((call) => runCall(call, using, asked.signal, false)));
  };
  const { ended } = await agentLoop({ ask, run, ...BUDGET, turns: steps.length, signal: asked.signal });
  if (ended !== "answer" && message.finish !== "length") message.budget = ended;
}

/** @param {import("../answer/tool_calls.js").ToolCall} call @param {number} index @returns {Call} */
function callOf({ id, name, arguments: args }, index) {
  return { id: id || `call_${index}`, name, arguments: args || "{}", state: "asked" };
}

/**
 * Asks for a call and runs it. Errors are its result; an abort rejects, and leaves it without one.
 * @param {Call} call @param {Using} using @param {AbortSignal} signal @param {boolean} again
 */
async function runCall(call, using, signal, again) {
  const { offered, chat, isPrivate, files: attached, permit, confirm, changed, progressed } = using;
  try {
    const tool = offered.find(({ called }) => called === call.name);
    if (!tool) throw new Error(`There is no tool ${call.name}.`);
    const args = argumentsOf(call.arguments);
    if (await permit(call, tool, again)) {
      signal.throwIfAborted();
      call.state = "running";
      changed();
      const onProgress = (/** @type {string} */ text) => progressed(call, text);
      const asks = (/** @type {string} */ question) => confirm(call, question);
      const options = { signal, chat, isPrivate, files: attached, confirm: asks, onProgress };
      const { text, files, failed } = resultOf(await tool.run(args, options));
      signal.throwIfAborted();
      Object.assign(call, { state: failed ? "failed" : "done", text, ...(files?.length && { files }) });
    } else {
      Object.assign(call, { state: "refused", text: REFUSED });
    }
  } catch (error) {
    signal.throwIfAborted();
    if (isLeft()) await Promise.race([aborted(signal), isBack()]); // without a result, the call is asked for again
    Object.assign(call, { state: "failed", text: toldOfError(error) });
  }
  changed();
}

/** Never resolves; rejects with the signal's reason. @param {AbortSignal} signal @returns {Promise<never>} */
function aborted(signal) {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
}

/** @param {unknown} value of a tool's run @returns {ToolResult} */
function resultOf(value) {
  const { text, files, failed } = /** @type {Partial<ToolResult>} */ (Object(value));
  return typeof text === "string" ? { text, files, failed } : { text: toldOf(value) };
}
