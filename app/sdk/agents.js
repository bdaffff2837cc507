/**
 * The agent loop: the model calls tools, their results go back to it, until it answers or a limit ends it. Only tools
 * of the caller run, in the caller's page.
 */
import { agentLoop, argumentsOf, toldOf, toldOfError } from "./agent_loop.js";
import { pageTools } from "./page_tools.js";

/**
 * @typedef {Record<string, any>} Json
 * @typedef {import("./types.d.ts").Api} Api
 * @typedef {import("./types.d.ts").AgentRequest} AgentRequest
 * @typedef {import("./types.d.ts").AgentResult} AgentResult
 * @typedef {import("./types.d.ts").AgentTool} AgentTool
 */

const MAX_TURNS = 8;
const NOT_RUN = JSON.stringify({ error: "There were no turns or tokens left to run this." });

/** Agents over an engine: `engine.agents`. */
export class Agents {
  #api;

  /** @param {Api} api */
  constructor(api) {
    this.#api = api;
  }

  /**
   * Answers messages with the help of tools. The last turn may call none, so a run ends with an answer unless its tokens
   * are used up. Rejects with what the engine rejects with, and with the signal's reason; never because a tool failed:
   * the model is told the error.
   * @param {AgentRequest} request @returns {Promise<AgentResult>}
   */
  async run({ messages, tools, maxTurns = MAX_TURNS, maxTokens, signal, onEvent, ...request }) {
    const conversation = [...messages];
    const usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
    const described = tools.map(({ function: described }) => ({ type: "function", function: described }));
    /** @type {any} */
    let message;
    /** @param {{ turn: number, last: boolean, left: number | undefined }} turn */
    const ask = async ({ turn, last, left }) => {
      onEvent?.({ type: "turn", turn });
      /** @type {any} */
      const asked = {
        ...request,
        messages: conversation,
        tools: described,
        stream: false,
        ...(left !== undefined && { max_tokens: left }),
        ...(last && { tool_choice: "none" }),
      };
      /** @type {any} */
      const answer = await this.#api.chat.completions.create(asked, { signal });
      for (const name of /** @type {(keyof typeof usage)[]} */ (Object.keys(usage))) usage[name] += answer.usage[name];
      const [choice] = answer.choices;
      message = choice.message;
      conversation.push(message);
      const cut = choice.finish_reason === "length";
      return { calls: message.tool_calls ?? [], tokens: answer.usage.completion_tokens, cut };
    };
    const run = async (/** @type {Json[]} */ calls) =>
      conversation.push(...(await Promise.all(calls.map((call) => result(call, tools, { signal, onEvent })))));
    const { turns, ended, notRun } = await agentLoop({ ask, run, maxTurns, maxTokens, signal });
    for (const { id } of notRun) conversation.push({ role: "tool", tool_call_id: id, content: NOT_RUN });
    return { message, messages: conversation, usage, turns, ended };
  }

  /** The tools that this page's documents offer by WebMCP; none where the browser does not know it. */
  pageTools() {
    return pageTools();
  }
}

/**
 * The message with the result of one call.
 * @param {Json} call @param {AgentTool[]} tools @param {Pick<AgentRequest, "signal" | "onEvent">} options
 */
async function result({ id, function: { name, arguments: text } }, tools, { signal, onEvent }) {
  let content;
  try {
    const tool = tools.find((tool) => tool.function.name === name);
    if (!tool) throw new Error(`There is no tool ${name}.`);
    const given = argumentsOf(text);
    onEvent?.({ type: "call", id, name, arguments: given });
    content = toldOf(await tool.run(given, { signal }));
  } catch (error) {
    signal?.throwIfAborted();
    content = toldOfError(error);
  }
  onEvent?.({ type: "result", id, name, content });
  return { role: "tool", tool_call_id: id, name, content };
}
