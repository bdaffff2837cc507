/** Asks the documents: finds passages and builds a prompt with as many as the context holds. */
import { fitting, partsOf, promptOf } from "../retrieval/prompt.js";
import { t } from "../language/phrase.js";
import { readSettings } from "./settings.js";

/**
 * @typedef {import("../retrieval/library.js").Library} Library
 * @typedef {import("../retrieval/prompt.js").Source} Source
 * @typedef {string | ReturnType<typeof partsOf>} Content
 * @typedef {{ role: string, content: Content }[]} Messages
 */

const MAX_PASSAGES = 8;
const SMALL_CONTEXT = 4096; // tokens
const MAX_PASSAGES_SMALL = 3; // with a context of SMALL_CONTEXT tokens or less
const UPSTREAM_TOKENS = 4000; // for passages, where the context of another server is not known
const ANSWER = 512; // tokens reserved for the answer, if the context allows

/**
 * @param {Library} library @param {string} question @param {Messages} before the earlier messages
 * @param {import("../wisp.js").Wisp} wisp @param {number | null} context in tokens; null: not known
 * @param {string} begun the answer's beginning
 * @returns {Promise<{ content: Content, sources: Source[] }>} the prompt; without sources, the question
 */
export async function askDocuments(library, question, before, wisp, context, begun) {
  const count = async (/** @type {string} */ text) =>
    context ? (await wisp.tokenize(text)).length : Math.ceil(text.length / 3);
  const found = await library.search(question, context && context <= SMALL_CONTEXT ? MAX_PASSAGES_SMALL : MAX_PASSAGES);
  const messages = [...before, { role: "user", content: promptOf(question, []) }];
  let capacity = UPSTREAM_TOKENS;
  if (context) {
    const answer = Math.min(readSettings().max_tokens ?? ANSWER, ANSWER, Math.floor(context / 4));
    capacity = context - answer - (await count((await wisp.applyTemplate(messages)) + begun));
  }
  const sources = await fitting(found, capacity, count);
  if (found.length && !sources.length) {
    const message = t("The question fills the context, so no passage of the documents fits. Shorten it.");
    throw Object.assign(new Error(`${message}`), { code: "context_length_exceeded" });
  }
  if (!sources.length) return { content: question, sources };
  return { content: context ? partsOf(question, sources) : promptOf(question, sources), sources };
}
