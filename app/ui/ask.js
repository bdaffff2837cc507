/** A question to the documents: finds passages, and makes of them and the question what the model can hold. */
import { fitting, promptOf } from "../retrieval/prompt.js";
import { readSettings } from "./settings.js";

/**
 * @typedef {import("../retrieval/library.js").Library} Library
 * @typedef {import("../retrieval/prompt.js").Source} Source
 * @typedef {{ role: string, content: string }[]} Messages
 */

const MOST = 8; // passages
const FEW = 3; // for small models
const SMALL = 4096; // tokens of context
const AWAY = 4000; // tokens for passages where the context is another server's, and not known
const ANSWER = 512; // tokens kept free for the answer, where there is room

/**
 * @param {Library} library @param {string} question @param {Messages} before what was said before it
 * @param {import("../wisp.js").Wisp} wisp @param {number | null} context in tokens; null: not known
 * @returns {Promise<{ content: string, sources: Source[] }>} what the model is asked; without sources, the question
 */
export async function askDocuments(library, question, before, wisp, context) {
  const count = async (/** @type {string} */ text) =>
    context ? (await wisp.tokenize(text)).length : Math.ceil(text.length / 3);
  const found = await library.search(question, context && context <= SMALL ? FEW : MOST);
  const messages = [...before, { role: "user", content: promptOf(question, []) }];
  let room = AWAY;
  if (context) {
    const answer = Math.min(readSettings().max_tokens ?? ANSWER, ANSWER, Math.floor(context / 4));
    room = context - answer - (await count(await wisp.applyTemplate(messages)));
  }
  const sources = await fitting(found, room, count);
  if (found.length && !sources.length) {
    const message = "This chat leaves no room for passages of the documents.";
    throw Object.assign(new Error(message), { code: "context_length_exceeded" });
  }
  return { content: sources.length ? promptOf(question, sources) : question, sources };
}
