/** Checks what callers of the Prompt API pass (prompt_api.js), and turns it into OpenAI's messages and forms. */
import { checkMedium } from "./prompt_media.js";
import { TYPES } from "./prompt_options.js";
import { callOf, messageOfResponse } from "./prompt_tools.js";

/**
 * @typedef {import("./language_model.d.ts").LanguageModelPrompt} Prompt
 * @typedef {import("./language_model.d.ts").LanguageModelMessage} LanguageModelMessage
 * @typedef {import("./language_model.d.ts").LanguageModelMessageContent} Content
 * @typedef {Record<string, any>} Message  of OpenAI's API; pictures and sounds are parts of prompt_media.js
 */
const ROLES = ["system", "user", "assistant"];
const ROLE_OF = /** @type {Record<string, string>} */ ({ "tool-call": "assistant", "tool-response": "user" });
/** For templates, which need more than a system prompt. */
export const EMPTY = { role: "user", content: "" };

/** @param {string} message @param {string} name */
const failed = (message, name) => new DOMException(message, name);

/** Whether Web IDL takes a value for a sequence; it takes all others for strings. @param {any} value */
const isSequence = (value) => typeof value === "object" && value !== null && Symbol.iterator in value;

/**
 * The messages of an input. Their pictures and sounds are still the caller's (prompt_media.js reads them).
 * @param {any} input a Prompt @param {Set<string>} inputs types of content that the session takes
 * @param {{ initial?: boolean, begun?: boolean }} [place] `initial`: of initialPrompts, which have no prefix; `begun`: the
 *   session has messages, so no system prompt may come
 * @returns {{ messages: Message[], prefix: string | null }} `prefix`: of the answer; it is the last message's content, too
 */
export function messagesOf(input, inputs, { initial = false, begun = false } = {}) {
  /** @type {LanguageModelMessage[]} */
  const given = isSequence(input) ? [...input] : [{ role: "user", content: `${input}` }];
  const messages = given.flatMap((message, i) => {
    if (!ROLES.includes(message?.role)) throw new TypeError(`A role must be one of ${ROLES.join(", ")}.`);
    if (message.role === "system" && (i || begun)) throw new TypeError("A system prompt must be the first message.");
    const ends = !initial && i === given.length - 1;
    if (message.prefix && !(ends && message.role === "assistant"))
      throw failed("Only the last message, an assistant's, may be a prefix.", "SyntaxError");
    return written(message, inputs);
  });
  const last = messages.at(-1);
  if (!given.at(-1)?.prefix) return { messages, prefix: null };
  if (last?.tool_calls) throw failed("A prefix may have text only.", "NotSupportedError");
  return { messages, prefix: last?.content };
}

/** Messages that ask for an answer: at least one. @param {Message[]} messages @returns {Message[]} */
export const asked = (messages) => (messages.length ? messages : [EMPTY]);

/** A message as OpenAI's: responses of tools are messages of their own. @param {LanguageModelMessage} message @param {Set<string>} inputs */
function written({ role, content }, inputs) {
  if (content === undefined) throw new TypeError("A message needs content.");
  if (!isSequence(content)) return [{ role, content: `${content}` }];
  const given = [.../** @type {Content[]} */ (content)];
  given.forEach((part) => check(part, role, inputs));
  const calls = given.filter(({ type }) => type === "tool-call").map(({ value }) => callOf(value));
  const responses = given.filter(({ type }) => type === "tool-response").map(({ value }) => messageOfResponse(value));
  const parts = partsOf(given.filter(({ type }) => !ROLE_OF[type]));
  if (calls.length) return [{ role, content: parts, tool_calls: calls }];
  return responses.length && !parts ? responses : [...responses, { role, content: parts }];
}

/**
 * A text, or its parts if it has media. Texts that follow each other are one.
 * @param {any[]} given @returns {string | Message[]}
 */
function partsOf(given) {
  /** @type {Message[]} */
  const parts = [];
  for (const part of given) {
    const last = parts.at(-1);
    if (part.type !== "text") parts.push(part);
    else if (last?.type === "text") last.text += part.value;
    else parts.push({ type: "text", text: part.value });
  }
  return parts.some(({ type }) => type !== "text") ? parts : (parts[0]?.text ?? "");
}

/** Throws for a part that a session cannot take. @param {any} part @param {string} role @param {Set<string>} inputs */
function check(part, role, inputs) {
  const { type, value } = part ?? {};
  if (!TYPES.includes(type)) throw new TypeError(`There is no content of type ${type}.`);
  if (type === "text") {
    if (typeof value !== "string") throw new TypeError("The value of a text must be a string.");
    return;
  }
  const owner = ROLE_OF[type];
  if (owner && role !== owner)
    throw new TypeError(`Only messages of the role ${owner} may have content of type ${type}.`);
  if (!owner && role === "assistant")
    throw failed("Messages of the assistant may have text and tool calls only.", "NotSupportedError");
  if (!inputs.has(type)) {
    const why = `Name {type: "${type}"} in expectedInputs of create().`;
    throw failed(`This session takes no content of type ${type}. ${why}`, "NotSupportedError");
  }
  if (!owner) checkMedium(type, value);
}

/** Messages with a sentence at the end of the last user's. @param {Message[]} messages @param {string} sentence */
export function told(messages, sentence) {
  const last = sentence ? messages.findLastIndex(({ role }) => role === "user") : -1;
  return messages.map((message, i) =>
    i === last ? { ...message, content: withLine(message.content, sentence) } : message,
  );
}

/** @param {string | Message[]} content @param {string} line */
function withLine(content, line) {
  return typeof content === "string" ? `${content}\n${line}` : [...content, { type: "text", text: `\n${line}` }];
}

/**
 * A responseConstraint as OpenAI's parameters, and as the sentence that tells the model.
 * @param {unknown} constraint @returns {{ form: Message, told: string }}
 */
export function formOf(constraint) {
  if (constraint === undefined) return { form: {}, told: "" };
  if (constraint instanceof RegExp) {
    const { source, flags } = constraint;
    if (flags.replace(/[dgu]/g, "")) throw failed(`The flags ${flags} are not supported.`, "NotSupportedError");
    const pattern = source.replace(/^\^/, "").replace(/(?<!\\)\$$/, "");
    return { form: { regex: pattern }, told: `Answer with a text that matches this regular expression: ${source}` };
  }
  if (typeof constraint !== "object" || !constraint)
    throw new TypeError("A responseConstraint must be a JSON schema or a RegExp.");
  const schema = copyOf(constraint);
  return {
    form: { response_format: { type: "json_schema", json_schema: { name: "answer", schema } } },
    told: `Answer with JSON that follows this schema: ${JSON.stringify(schema)}`,
  };
}

/** @param {object} schema */
function copyOf(schema) {
  try {
    return JSON.parse(JSON.stringify(schema));
  } catch (/** @type {any} */ error) {
    throw failed(`The JSON schema cannot be written as JSON: ${error.message}`, "NotSupportedError");
  }
}
