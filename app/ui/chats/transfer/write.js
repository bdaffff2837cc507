/** Writes chats to files: JSON, which holds everything, and Markdown, which has the shown branch. */
import { t } from "../../../language/phrase.js";
import { base64Of } from "../../../sdk/base64.js";
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

/** @type {Record<Form, (chat: Stored) => Promise<string>>} */
export const WRITE = { json, markdown: async (chat) => markdown(chat) };

/** Everything of a chat; files of media and of calls as data URLs. @param {Stored} chat */
async function json({ info, messages }) {
  const written = messages.map(async ({ media, steps, ...message }) => ({
    ...message,
    ...(media && { media: await Promise.all(media.map(withData)) }),
    ...(steps && { steps: await Promise.all(steps.map(stepWithData)) }),
  }));
  return JSON.stringify({ info, messages: await Promise.all(written) });
}

/** @param {{ blob: Blob }} file */
async function withData({ blob, ...file }) {
  return { ...file, data: `data:${blob.type};base64,${await base64Of(blob)}` };
}

/** @param {import("../database.js").Step} step */
async function stepWithData({ calls, ...step }) {
  const written = calls.map(async ({ files, ...call }) =>
    files ? { ...call, files: await Promise.all(files.map(withData)) } : call,
  );
  return { ...step, calls: await Promise.all(written) };
}

/** @param {Stored} chat */
function markdown({ info, messages }) {
  const parts = new Tree(messages, info.shown).path().map(markdownOf);
  const date = new Date(info.created).toISOString().slice(0, 10);
  return [`# ${info.title}`, `${date}`, ...parts].join("\n\n");
}

/** @param {import("../database.js").Message} message */
export function markdownOf({ role, content, model, media = [], steps = [] }) {
  const who = role === "user" ? t("You") : model || t("Answer");
  const calls = steps.flatMap(({ content, calls }) => [content, ...calls.flatMap(written)]);
  const said = [...calls, content].filter(Boolean);
  return [`## ${who}`, ...media.map(({ name }) => `[${name}]`), ...said].join("\n\n");
}

/** A call with its result, as blocks of code. @param {import("../database.js").Call} call */
function written({ name, arguments: args, text, files = [] }) {
  const block = (/** @type {string} */ content) => `\`\`\`\`\n${content}\n\`\`\`\``;
  return [`\`${name}\``, block(args), ...(text ? [block(text)] : []), ...files.map((file) => `[${file.name}]`)];
}

/** A file's name from a title. @param {string} title @param {Form} form */
export function fileName(title, form) {
  const plain = title
    .replace(/[^\p{L}\p{N}]+/gu, "-")
    .replace(/^-|-$/g, "")
    .slice(0, 60);
  return `${plain || "chat"}.${form === "json" ? "json" : "md"}`;
}
