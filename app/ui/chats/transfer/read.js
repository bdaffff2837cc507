/** Reads files of chats: Wisp's own, and those of other programs. */
import { t } from "../../../language/phrase.js";
import { fromChatGpt, isChatGpt } from "./chatgpt.js";
import { fromClaude, isClaude } from "./claude.js";
import { fromLlamaCpp, isLlamaCpp } from "./llama_cpp.js";
import { fromOpenWebUi, isOpenWebUi } from "./open_webui.js";
import { FORMAT, fromOwn } from "./own.js";

/** @typedef {import("./tree.js").Stored} Stored */

/** @type {{ isOf: (entry: any) => boolean, read: (entry: any) => Stored }[]} */
const PROGRAMS = [
  { isOf: isChatGpt, read: fromChatGpt },
  { isOf: isClaude, read: fromClaude },
  { isOf: isLlamaCpp, read: fromLlamaCpp },
  { isOf: isOpenWebUi, read: fromOpenWebUi },
];

/** The chats of a file's text. An Error says what is wrong. @param {string} text @returns {Stored[]} */
export function chatsOf(text) {
  /** @type {any} */
  let file;
  try {
    file = JSON.parse(text.replace(/^\ufeff/, ""));
  } catch (error) {
    throw failure(t("This is not JSON, or it is damaged: {why}", { why: whyOf(error) }));
  }
  if (file?.format === FORMAT) return fromOwn(file);
  const list = Array.isArray(file) ? file : [file];
  if (!list.length) throw failure(t("The file has no chats."));
  return list.map((entry, index) => {
    const place = { number: index + 1, count: list.length };
    const program = PROGRAMS.find(({ isOf }) => isOf(entry));
    if (!program)
      throw failure(t("Chat {number} of {count} is not of ChatGPT, Claude, llama.cpp, Open WebUI or Wisp.", place));
    try {
      return program.read(entry);
    } catch (error) {
      throw failure(t("Chat {number} of {count} is damaged: {why}", { ...place, why: whyOf(error) }));
    }
  });
}

/** @param {import("../../../language/phrase.js").Phrase} text */
const failure = (text) => new Error(`${text}`);

/** @param {unknown} error */
const whyOf = (error) => /** @type {Error} */ (error).message;
