/** Checks what callers of the Prompt API pass (prompt_api.js), and turns it into OpenAI's messages and forms. */

/**
 * @typedef {import("./language_model.d.ts").LanguageModelPrompt} Prompt
 * @typedef {import("./language_model.d.ts").LanguageModelTool} Tool
 * @typedef {Record<string, any>} Message  of OpenAI's API
 */
const ROLES = ["system", "user", "assistant"];

/** @param {string} message @param {string} name */
const failed = (message, name) => new DOMException(message, name);

/**
 * The messages of an input.
 * @param {Prompt} input @param {{ initial?: boolean }} [place] `initial`: of initialPrompts, which may begin with a system prompt
 * @returns {{ messages: Message[], prefix: string | null }} `prefix`: of the answer; it is the last message's content, too
 */
export function messagesOf(input, { initial = false } = {}) {
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
    return { role: message.role, content: textOf(message.content) };
  });
  return { messages, prefix: given.at(-1)?.prefix ? /** @type {Message} */ (messages.at(-1)).content : null };
}

/** @param {unknown} content @returns {string} */
function textOf(content) {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) throw new TypeError("The content must be a string or a sequence of parts.");
  return content
    .map(({ type, value }) => {
      if (type === "image" || type === "audio")
        throw failed(`Content of type ${type} is not supported.`, "NotSupportedError");
      if (type !== "text") throw new TypeError(`There is no content of type ${type}.`);
      if (typeof value !== "string") throw new TypeError("The value of a text must be a string.");
      return value;
    })
    .join("");
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
  for (const { type } of [...expectedInputs, ...expectedOutputs]) {
    if (!["text", "image", "audio"].includes(type)) throw new TypeError(`There is no type ${type}.`);
    if (type !== "text") throw failed(`Content of type ${type} is not supported.`, "NotSupportedError");
  }
  if (temperature !== undefined && !(temperature >= 0)) throw new RangeError("temperature must be at least 0.");
  if (topK !== undefined && !(topK >= 1)) throw new RangeError("topK must be at least 1.");
  toolsOf(tools);
}
