/** Wisp's own file of chats: JSON that holds everything, all branches included. */

import { t } from "../../../language/phrase.js";
import { bytesOf } from "../../../sdk/base64.js";

/** @typedef {import("./tree.js").Stored} Stored */

export const FORMAT = "wisp-chats";
export const VERSION = 1;

const DATA = /^data:((?:image|audio)\/[\w.+-]+)?;base64,[A-Za-z0-9+/]*=*$/;
const FILE = /^data:([\w.+-]+\/[\w.+-]+)?;base64,[A-Za-z0-9+/]*=*$/;

/** @param {unknown} value */
const isText = (value) => typeof value === "string";
/** @param {unknown} value */
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
/** @param {any} value */
const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
/** @param {any} value */
const isSource = (value) => isObject(value) && isText(value.document) && isText(value.text);

/** @param {any} value */
const isMedium = (value) =>
  isObject(value) &&
  ["image", "audio", "file"].includes(value.kind) &&
  isText(value.name) &&
  (value.kind === "file" ? FILE : DATA).test(value.data);

const STATES = ["asked", "running", "done", "failed", "refused"];

/** @param {any} value */
const isFile = (value) => isObject(value) && isText(value.name) && FILE.test(value.data);

/** @param {any} call */
const isCall = (call) =>
  isObject(call) &&
  [call.id, call.name, call.arguments].every(isText) &&
  STATES.includes(call.state) &&
  (call.text === undefined || isText(call.text)) &&
  (call.files === undefined || (Array.isArray(call.files) && call.files.every(isFile)));

/** @param {any} step */
const isStep = (step) =>
  isObject(step) && isText(step.content) && Array.isArray(step.calls) && step.calls.every(isCall);

/** @type {Record<string, (value: any) => boolean>} what must be there */
const CHAT = { id: (id) => isText(id) && id !== "", title: isText, created: isNumber, updated: isNumber };
/** @type {Record<string, (value: any) => boolean>} what may be there */
const CHAT_OPTIONS = {
  titledBy: isText,
  shown: (n) => n === null || isNumber(n),
  pinned: (value) => typeof value === "boolean",
  folder: isText,
  settings: isObject,
  assistant: (value) => isObject(value) && isText(value.id) && isText(value.name) && isObject(value.settings),
};
/** @type {typeof CHAT} */
const MESSAGE = {
  n: (n) => Number.isSafeInteger(n) && n >= 0,
  role: (role) => role === "user" || role === "assistant",
  content: isText,
};
/** @type {typeof CHAT} */
const MESSAGE_OPTIONS = {
  parent: (n) => n === null || Number.isSafeInteger(n),
  media: (value) => Array.isArray(value) && value.every(isMedium),
  reasoning: isText,
  finish: (value) => ["stop", "length", "stopped", "error"].includes(value),
  error: (value) => isObject(value) && isText(value.message) && isText(value.code),
  stats: (value) => isObject(value) && [value.tokens, value.perSecond, value.firstMs].every(isNumber),
  model: isText,
  dropped: isNumber,
  steps: (value) => Array.isArray(value) && value.every(isStep),
  budget: (value) => value === "turns" || value === "tokens",
  sources: (value) => Array.isArray(value) && value.every(isSource),
  cut: (value) => isObject(value) && isObject(value.request) && isObject(value.journal),
  upstream: isText,
};

/** The chats of a file. An Error names what is wrong and where. @param {any} file @returns {Stored[]} */
export function fromOwn({ version, chats }) {
  if (version !== VERSION)
    throw failure(t("The file has version {version}; this page reads version {known}.", { version, known: VERSION }));
  if (!Array.isArray(chats)) throw failure(t("The file has no list of chats."));
  return chats.map((chat, index) => checked(chat, `chats[${index}]`));
}

/** @param {any} chat @param {string} where @returns {Stored} */
function checked(chat, where) {
  if (!isObject(chat?.info) || !Array.isArray(chat.messages)) throw failure(t("{where} is not a chat.", { where }));
  check(chat.info, CHAT, CHAT_OPTIONS, `${where}.info`);
  const seen = new Set();
  const messages = chat.messages.map((/** @type {any} */ message, /** @type {number} */ index) => {
    const place = `${where}.messages[${index}]`;
    if (!isObject(message)) throw failure(t("{where} is not a message.", { where: place }));
    check(message, MESSAGE, MESSAGE_OPTIONS, place);
    const parent = message.parent ?? null;
    if (seen.has(message.n) || (parent !== null && !seen.has(parent)))
      throw failure(t("{where} does not follow a message before it.", { where: place }));
    seen.add(message.n);
    const { media, steps } = message;
    return {
      ...message,
      parent,
      ...(media && { media: media.map(withBlob) }),
      ...(steps && { steps: steps.map(stepOf) }),
    };
  });
  // A file cannot allow tools to run.
  const { private: _, tools: __, allowed: ___, ...info } = chat.info;
  return { info: { ...info, shown: info.shown ?? null }, messages };
}

/** A medium, or a file of a call, with its blob: the file of chats has it as a data URL. @param {any} file */
function withBlob({ data, ...file }) {
  const [, type = ""] = FILE.exec(data) ?? [];
  const bytes = bytesOf(data.slice(data.indexOf(",") + 1));
  return { ...file, blob: new Blob([bytes], { type }) };
}

/** @param {any} step @returns {import("../database.js").Step} */
function stepOf({ calls, ...step }) {
  const withFiles = (/** @type {any} */ { files, ...call }) => ({
    ...call,
    ...(files && { files: files.map(withBlob) }),
  });
  return { ...step, calls: calls.map(withFiles) };
}

/** @param {import("../../../language/phrase.js").Phrase} text */
const failure = (text) => new Error(`${text}`);

/** @param {any} object @param {typeof CHAT} required @param {typeof CHAT} optional @param {string} where */
function check(object, required, optional, where) {
  for (const [name, isGood] of Object.entries(required)) {
    if (!isGood(object[name])) throw failure(t("{where} is missing or wrong.", { where: `${where}.${name}` }));
  }
  for (const [name, isGood] of Object.entries(optional)) {
    if (object[name] !== undefined && !isGood(object[name]))
      throw failure(t("{where} is wrong.", { where: `${where}.${name}` }));
  }
}
