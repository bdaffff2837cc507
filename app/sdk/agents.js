/**
 * The agent loop: the model calls tools, their results go back to it, until it answers or a limit ends it. Only tools
 * of the caller run, in the caller's page.
 */

/**
 * @typedef {Record<string, any>} Json
 * @typedef {import("./types.d.ts").Api} Api
 * @typedef {import("./types.d.ts").AgentRequest} AgentRequest
 * @typedef {import("./types.d.ts").AgentResult} AgentResult
 * @typedef {import("./types.d.ts").AgentTool} AgentTool
 */

const MAX_TURNS = 8;
const NOT_RUN = JSON.stringify({ error: "There were no tokens left to run this." });

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
    for (let turn = 1; ; turn++) {
      signal?.throwIfAborted();
      const last = turn >= maxTurns;
      const left = maxTokens === undefined ? undefined : maxTokens - usage.completion_tokens;
      /** @type {any} */
      const asked = {
        ...request,
        messages: conversation,
        tools: described,
        stream: false,
        ...(left !== undefined && { max_tokens: left }),
      };
      if (last) asked.tool_choice = "none";
      onEvent?.({ type: "turn", turn });
      /** @type {any} */
      const answer = await this.#api.chat.completions.create(asked, { signal });
      for (const name of /** @type {(keyof typeof usage)[]} */ (Object.keys(usage))) usage[name] += answer.usage[name];
      const [{ message, finish_reason: reason }] = answer.choices;
      conversation.push(message);
      const calls = message.tool_calls ?? [];
      const spent = maxTokens !== undefined && usage.completion_tokens >= maxTokens;
      if (!calls.length || spent || reason === "length") {
        for (const { id } of calls) conversation.push({ role: "tool", tool_call_id: id, content: NOT_RUN });
        const ended = spent || reason === "length" ? "tokens" : last ? "turns" : "answer";
        return { message, messages: conversation, usage, turns: turn, ended };
      }
      conversation.push(
        ...(await Promise.all(calls.map((/** @type {Json} */ call) => result(call, tools, { signal, onEvent })))),
      );
    }
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
    const given = JSON.parse(text || "{}");
    onEvent?.({ type: "call", id, name, arguments: given });
    const value = await tool.run(given, { signal });
    content = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  } catch (/** @type {any} */ error) {
    signal?.throwIfAborted();
    content = JSON.stringify({ error: `${error?.message ?? error}` });
  }
  onEvent?.({ type: "result", id, name, content });
  return { role: "tool", tool_call_id: id, name, content };
}
