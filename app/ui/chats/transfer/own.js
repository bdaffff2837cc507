/** Wisp's own file of chats: JSON that holds everything, all branches included. */

import { t } from "../../../language/phrase.js";
import { bytesOf } from "../../../sdk/base64.js";
import { CHAT, CHAT_OPTIONS, faultsOf, FILE, isObject, MESSAGE, MESSAGE_OPTIONS } from "../records.js";

/** @typedef {import("./tree.js").Stored} Stored */

export const FORMAT = "wisp-chats";
export const VERSION = 1;

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
    // Leave out the requests of answers, which a file could fill with what its chat does not show.
    const { media, steps, cut: _, trace: __, ...rest } = message;
    return {
      ...rest,
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
  const [, type = "", base64 = ""] = FILE.exec(data) ?? [];
  return { ...file, blob: new Blob([bytesOf(base64)], { type }) };
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

/** @param {any} object @param {import("../records.js").Shape} required @param {typeof required} optional @param {string} where */
function check(object, required, optional, where) {
  const [name] = faultsOf(object, required, optional);
  if (name === undefined) return;
  const place = { where: `${where}.${name}` };
  throw failure(name in required ? t("{where} is missing or wrong.", place) : t("{where} is wrong.", place));
}
