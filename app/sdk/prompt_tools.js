/**
 * Tools of the Prompt API (prompt_api.js). Sessions run them, or, where `expectedOutputs` names "tool-call", answer with
 * the calls: the page runs them and prompts with their responses.
 */

import { classOf } from "./prompt_media.js";

/**
 * @typedef {import("./language_model.d.ts").LanguageModelTool} Tool
 * @typedef {import("./prompt_messages.js").Message} Message
 * @typedef {import("./prompt_messages.js").Content} Content
 */
const PLAIN = ["Object", "Array"]; // classes of objects that JSON has

/** @param {string} message */
const damaged = (message) => new DOMException(message, "DataError");

/** A call of a tool that a model has made. */
export class LanguageModelToolCall {
  /** @param {{ callID: string, name: string, arguments?: object }} call */
  constructor(call) {
    const { callID, name } = call;
    this.callID = `${callID}`;
    this.name = `${name}`;
    this.arguments = call.arguments ?? {};
  }
}

/** What a tool has returned. */
export class LanguageModelToolSuccess {
  /** @param {import("./language_model.d.ts").LanguageModelToolSuccess} response */
  constructor({ callID, name, result }) {
    this.callID = `${callID}`;
    this.name = `${name}`;
    this.result = [...result];
  }
}

/** Why a tool has failed. */
export class LanguageModelToolError {
  /** @param {{ callID: string, name: string, errorMessage: string }} response */
  constructor({ callID, name, errorMessage }) {
    this.callID = `${callID}`;
    this.name = `${name}`;
    this.errorMessage = `${errorMessage}`;
  }
}

/**
 * Throws for tools that cannot be called. What a schema's own getters throw comes as it is.
 * @param {Tool[] | undefined} tools @param {boolean} returned whether the page runs the calls
 */
export function checkTools(tools, returned) {
  const names = new Set();
  for (const { name, description, inputSchema, execute } of tools ?? []) {
    if (!name || !description) throw new TypeError("A tool needs a name and a description.");
    if (names.has(name)) throw new TypeError(`Two tools are called ${name}.`);
    names.add(name);
    checkSchema(inputSchema);
    if (!returned && typeof execute !== "function")
      throw new TypeError('A tool needs execute, a function, or name {type: "tool-call"} in expectedOutputs.');
  }
}

/** @param {any} schema */
function checkSchema(schema) {
  if (typeof schema !== "object" || schema?.type !== "object")
    throw new TypeError('inputSchema must be a JSON schema of the type "object".');
  const { properties = {}, required = [] } = schema;
  if (typeof properties !== "object" || !properties) throw new TypeError("properties must be an object.");
  if (!Array.isArray(required)) throw new TypeError("required must be a list.");
  JSON.stringify(schema); // throws for circles
}

/** OpenAI's tools. @param {Tool[] | undefined} tools @returns {import("./types.d.ts").Tool[] | undefined} */
export function toolsOf(tools) {
  if (!tools?.length) return undefined;
  return tools.map(({ name, description, inputSchema }) => ({
    type: "function",
    function: { name, description, parameters: JSON.parse(JSON.stringify(inputSchema)) },
  }));
}

/** Runs a tool; its result as a message. The model learns of errors. @param {Tool[]} tools @param {any} call */
export async function run(tools, { id, function: { name, arguments: given } }) {
  let content;
  try {
    const tool = tools.find((one) => one.name === name);
    if (!tool?.execute) throw new Error(`there is no tool ${name}`);
    content = String(await tool.execute(JSON.parse(given || "{}")));
  } catch (/** @type {any} */ error) {
    content = errorText(error?.message ?? error);
  }
  return { role: "tool", tool_call_id: id, content };
}

/** @param {unknown} message */
const errorText = (message) => `Error: ${message}`;

/**
 * The calls of OpenAI's message as content of an answer; none of one that was cut off in the middle.
 * @param {Message} message @returns {Content[]}
 */
export function contentOfCalls({ tool_calls: calls = [] }) {
  return calls.flatMap((/** @type {any} */ { id, function: { name, arguments: given } }) => {
    try {
      const value = new LanguageModelToolCall({ callID: id, name, arguments: JSON.parse(given || "{}") });
      return { type: "tool-call", value };
    } catch {
      return [];
    }
  });
}

/** OpenAI's call of a message's content. @param {any} value @returns {Message} */
export function callOf(value) {
  checkIds(value);
  const given = value.arguments ?? {};
  if (classOf(given) !== "Object") throw damaged("The arguments of a tool call must be an object.");
  return { id: value.callID, type: "function", function: { name: value.name, arguments: jsonOf(given) } };
}

/** OpenAI's message with what a tool has returned. @param {any} value @returns {Message} */
export function messageOfResponse(value) {
  checkIds(value);
  const failed = typeof value.errorMessage === "string";
  const content = failed ? errorText(value.errorMessage) : Array.from(value.result ?? [], textOf).join("\n");
  return { role: "tool", tool_call_id: value.callID, content };
}

/** @param {any} value */
function checkIds(value) {
  if (typeof value?.callID !== "string" || typeof value.name !== "string")
    throw new TypeError("A tool call, and a response to one, need a callID and a name.");
}

/** @param {any} part of a tool's result @returns {string} */
function textOf({ type, value }) {
  if (type === "text" || type === "object") return typeof value === "string" ? value : jsonOf(value);
  throw new DOMException(`A tool's result cannot have content of type ${type}.`, "NotSupportedError");
}

/** JSON of plain data. @param {unknown} value @returns {string} */
function jsonOf(value) {
  let text;
  try {
    text = JSON.stringify(value, (_, inner) => {
      if (typeof inner === "object" && inner && !PLAIN.includes(classOf(inner)))
        throw damaged("it has an object of the platform");
      return inner;
    });
  } catch (/** @type {any} */ error) {
    throw damaged(`This is no JSON: ${error?.message}`);
  }
  if (text === undefined) throw damaged("This is no JSON.");
  return text;
}
