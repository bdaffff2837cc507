/** Writes chats to files: JSON, which holds everything, and Markdown, which has the shown branch. */
import { t } from "../../../language/phrase.js";
import { Tree } from "../tree.js";
import { FORMAT, VERSION } from "./own.js";

/**
 * @typedef {import("./tree.js").Stored} Stored
 * @typedef {"json" | "markdown"} Form
 */

/** The beginning and the end of a file, and what is between two chats. @type {Record<Form, [string, string, string]>} */
export const FRAME = {
  json: [`{"format":"${FORMAT}","version":${VERSION},"chats":[\n`, "\n]}\n", ",\n"],
  markdown: ["", "", "\n\n---\n\n"],
};

/** @type {Record<Form, (chat: Stored) => string>} */
export const WRITE = { json: (chat) => JSON.stringify(chat), markdown };

/** @param {Stored} chat */
function markdown({ info, messages }) {
  const parts = new Tree(messages, info.shown).path().map(({ role, content, model }) => {
    const who = role === "user" ? t("You") : model || t("Answer");
    return `## ${who}\n\n${content}`;
  });
  const date = new Date(info.created).toISOString().slice(0, 10);
  return [`# ${info.title}`, `${date}`, ...parts].join("\n\n");
}

/** A file's name from a title. @param {string} title @param {Form} form */
export function fileName(title, form) {
  const plain = title
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-|-$/g, "")
    .slice(0, 60);
  return `${plain || "chat"}.${form === "json" ? "json" : "md"}`;
}
