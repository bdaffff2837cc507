/** Reads files of chats: Wisp's own, ChatGPT's and Open WebUI's. */
import { fromChatGpt, isChatGpt } from "./chatgpt.js";
import { fromOpenWebUi, isOpenWebUi } from "./open_webui.js";
import { FORMAT, fromOwn } from "./own.js";

/** @typedef {import("./tree.js").Stored} Stored */

/** The chats of a file's text. An Error says what is wrong. @param {string} text @returns {Stored[]} */
export function chatsOf(text) {
  if (text.startsWith("PK")) throw new Error("This is a ZIP archive. Unpack it, and choose conversations.json.");
  /** @type {any} */
  let file;
  try {
    file = JSON.parse(text.replace(/^\ufeff/, ""));
  } catch (error) {
    throw new Error(`This is not JSON, or it is damaged: ${/** @type {Error} */ (error).message}`);
  }
  if (file?.format === FORMAT) return fromOwn(file);
  const list = Array.isArray(file) ? file : [file];
  if (!list.length) throw new Error("The file has no chats.");
  return list.map((entry, index) => {
    const where = `Chat ${index + 1} of ${list.length}`;
    const read = isChatGpt(entry) ? fromChatGpt : isOpenWebUi(entry) ? fromOpenWebUi : null;
    if (!read) throw new Error(`${where} is not of ChatGPT, Open WebUI or Wisp.`);
    try {
      return read(entry);
    } catch (error) {
      throw new Error(`${where} is damaged: ${/** @type {Error} */ (error).message}`);
    }
  });
}
