/** What sessions of the Prompt API (prompt_api.js) ask the engine: the tokens of messages, and answers. */
import { addCallParts } from "./call_parts.js";
import { withAddresses } from "./prompt_media.js";
import { EMPTY } from "./prompt_messages.js";

/**
 * @typedef {import("./prompt_api.js").State} State
 * @typedef {import("./prompt_api.js").Push} Push
 * @typedef {import("./prompt_messages.js").Message} Message
 * @typedef {import("../wisp.js").Wisp} Wisp
 */
const FORM = /^(response_format|regex|continue_final_message)\b/; // parameters that a responseConstraint becomes

/** @param {Message[]} messages */
const complete = (messages) => (messages.some(({ role }) => role !== "system") ? messages : [...messages, EMPTY]);

/** Tokens of a session's messages. @param {Pick<State, "engine" | "model" | "tools">} state @param {Message[]} messages */
export async function tokensOf({ engine, model, tools }, messages) {
  if (!messages.length) return 0;
  return withAddresses(
    complete(messages),
    async (messages) => (await engine.countTokens({ model, messages, tools })).tokens,
  );
}

/**
 * Has the engine compute messages, so that the next prompt finds them in its caches. If it cannot, that prompt will.
 * @param {Pick<State, "engine" | "model" | "tools">} state @param {Message[]} messages @param {AbortSignal} signal
 */
export async function computeAhead({ engine, model, tools }, messages, signal) {
  const request = { model, messages: complete(messages), tools, max_tokens: 1 }; // a request has at least one token
  await streamed(engine, request, signal, () => undefined).catch(() => undefined);
}

/**
 * Streams one answer; its message. @param {Wisp} engine @param {Message} request @param {AbortSignal} signal
 * @param {Push} push
 */
export async function streamed(engine, request, signal, push) {
  try {
    return await withAddresses(request.messages, (messages) =>
      received(engine, { ...request, messages }, signal, push),
    );
  } catch (/** @type {any} */ error) {
    if (!FORM.test(error?.param)) throw error;
    throw new DOMException(error.message, "NotSupportedError");
  }
}

/** @param {Wisp} engine @param {Message} request @param {AbortSignal} signal @param {Push} push */
async function received(engine, request, signal, push) {
  /** @type {Message} */
  const message = { role: "assistant", content: "" };
  const stream = await engine.chat.completions.create(
    { ...request, messages: request.messages, stream: true },
    { signal },
  );
  /** @type {import("./call_parts.js").CallParts[]} */
  const calls = [];
  for await (const { choices } of stream) {
    const { content, tool_calls: parts } = choices[0]?.delta ?? {};
    if (content) {
      message.content += content;
      push(content);
    }
    addCallParts(calls, parts);
  }
  signal.throwIfAborted();
  if (calls.length)
    message.tool_calls = calls.map(({ id, name, arguments: args }, i) => ({
      id: id || `call_${i}`,
      type: "function",
      function: { name, arguments: args },
    }));
  return message;
}
