/** Checks what callers of the Prompt API pass (prompt_api.js), and turns it into OpenAI's messages and forms. */
import { checkMedium } from "./prompt_media.js";

/**
 * @typedef {import("./language_model.d.ts").LanguageModelPrompt} Prompt
 * @typedef {import("./language_model.d.ts").LanguageModelTool} Tool
 * @typedef {Record<string, any>} Message  of OpenAI's API; pictures and sounds are parts of prompt_media.js
 * @typedef {"image" | "audio"} Kind
 */
const ROLES = ["system", "user", "assistant"];
const KINDS = /** @type {const} */ (["image", "audio"]);
const TYPES = ["text", ...KINDS, "tool-call", "tool-response"];

/** @param {string} message @param {string} name */
const failed = (message, name) => new DOMException(message, name);

/**
 * The messages of an input. Their pictures and sounds are still the caller's (prompt_media.js reads them).
 * @param {Prompt} input @param {Kind[]} kinds of media that the session expects
 * @param {{ initial?: boolean }} [place] `initial`: of initialPrompts, which may begin with a system prompt
 * @returns {{ messages: Message[], prefix: string | null }} `prefix`: of the answer; it is the last message's content, too
 */
export function messagesOf(input, kinds, { initial = false } = {}) {
  /** @type {import("./language_model.d.ts").LanguageModelMessage[]} */
  const given = typeof input === "string" ? [{ role: "user", content: input }] : input;
  if (!Array.isArray(given)) throw new TypeError("The input must be a string or a sequence of messages.");
  const messages = given.map((message, i) => {
    if (!message || !ROLES.includes(message.role)) throw new TypeError(`A role must be one of ${ROLES.join(", ")}.`);
    if (message.role === "system" && !initial)
      throw failed("A system prompt is possible in initialPrompts only.", "NotSupportedError");
    if (message.role === "system" && i) throw new TypeError("The system prompt must be the first of initialPrompts.");
    const ends = !initial && i === given.length - 1;
    if (message.prefix && !(ends && message.role === "assistant"))
      throw failed("Only the last message, an assistant's, may be a prefix.", "SyntaxError");
    return { role: message.role, content: contentOf(message, kinds) };
  });
  return { messages, prefix: given.at(-1)?.prefix ? /** @type {Message} */ (messages.at(-1)).content : null };
}

/**
 * The content of a message: a text, or its parts if it has media. Texts that follow each other are one.
 * @param {import("./language_model.d.ts").LanguageModelMessage} message @param {Kind[]} kinds
 * @returns {string | Message[]}
 */
function contentOf({ role, content }, kinds) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) throw new TypeError("The content must be a string or a sequence of parts.");
  /** @type {Message[]} */
  const parts = [];
  for (const part of content) {
    check(part, role, kinds);
    const last = parts.at(-1);
    if (part.type !== "text") parts.push(part);
    else if (last?.type === "text") last.text += part.value;
    else parts.push({ type: "text", text: part.value });
  }
  return parts.some(({ type }) => type !== "text") ? parts : (parts[0]?.text ?? "");
}

/** Throws for a part that a session cannot take. @param {any} part @param {string} role @param {Kind[]} kinds */
function check(part, role, kinds) {
  const { type, value } = part ?? {};
  if (!TYPES.includes(type)) throw new TypeError(`There is no content of type ${type}.`);
  if (type === "text") {
    if (typeof value !== "string") throw new TypeError("The value of a text must be a string.");
    return;
  }
  if (role === "assistant") throw failed("Messages of the assistant may have text only.", "NotSupportedError");
  if (!kinds.includes(type)) {
    const why = isKind(type) ? `Name {type: "${type}"} in expectedInputs of create().` : "It is not supported.";
    throw failed(`This session takes no content of type ${type}. ${why}`, "NotSupportedError");
  }
  checkMedium(type, value);
}

/** @param {string} type @returns {type is Kind} */
const isKind = (type) => KINDS.includes(/** @type {Kind} */ (type));

/**
 * The kinds of media that a session expects.
 * @param {import("./language_model.d.ts").LanguageModelCreateCoreOptions} options @returns {Kind[]}
 */
export function kindsOf({ expectedInputs = [] }) {
  return KINDS.filter((kind) => expectedInputs.some(({ type }) => type === kind));
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
  const schema = JSON.parse(JSON.stringify(constraint));
  return {
    form: { response_format: { type: "json_schema", json_schema: { name: "answer", schema } } },
    told: `Answer with JSON that follows this schema: ${JSON.stringify(schema)}`,
  };
}

/** OpenAI's tools. @param {Tool[] | undefined} tools @returns {import("./types.d.ts").Tool[] | undefined} */
export function toolsOf(tools) {
  for (const { name, description, inputSchema, execute } of tools ?? []) {
    if (!name || !description) throw new TypeError("A tool needs a name and a description.");
    if (typeof inputSchema !== "object" || !inputSchema) throw new TypeError("inputSchema must be a JSON schema.");
    if (typeof execute !== "function") throw new TypeError("execute must be a function.");
  }
  if (!tools?.length) return undefined;
  return tools.map(({ name, description, inputSchema }) => ({
    type: "function",
    function: { name, description, parameters: inputSchema },
  }));
}

/**
 * Throws for options that no model here has.
 * @param {import("./language_model.d.ts").LanguageModelCreateCoreOptions} options
 */
export function checkOptions({ expectedInputs = [], expectedOutputs = [], temperature, topK, tools }) {
  for (const { type } of [...expectedInputs, ...expectedOutputs])
    if (!TYPES.includes(type)) throw new TypeError(`There is no type ${type}.`);
  const unsupported =
    expectedInputs.find(({ type }) => type !== "text" && !isKind(type)) ??
    expectedOutputs.find(({ type }) => type !== "text");
  if (unsupported) throw failed(`Content of type ${unsupported.type} is not supported.`, "NotSupportedError");
  if (temperature !== undefined && !(temperature >= 0)) throw new RangeError("temperature must be at least 0.");
  if (topK !== undefined && !(topK >= 1)) throw new RangeError("topK must be at least 1.");
  toolsOf(tools);
}
