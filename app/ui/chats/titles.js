/** Titles made by the model, once per chat and only while it is idle: the next question ends the request at once. */

import { byId } from "../dom.js";

/**
 * @typedef {"large" | "always" | "never"} When
 * @typedef {import("./database.js").Message} Message
 */

const KEY = "wisp.titles";
const QUIET_MS = 2000; // without a request
const LARGE = 300e6; // bytes of weights: smaller models answer the question again instead of giving a title
const EXCERPT = 600; // characters of the question and of the answer
const TOKENS = 24; // of the answer
const TOKENS_WITH_THOUGHTS = 512; // of a model that thinks although it is told not to
const MAX_TRIES = 3; // for a chat: a question ends each
const LONGEST = 60; // characters of a title

/** When the model makes titles: if it is large enough, always, or never. @returns {When} */
function titlesWhen() {
  const stored = localStorage.getItem(KEY);
  return stored === "always" || stored === "never" ? stored : "large";
}

/** @param {{ chat: import("./chat.js").Chat, engine: import("../engine.js").Engine }} parts */
export function startTitles({ chat, engine }) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  /** @type {AbortController | null} */
  let asking = null;
  /** @type {Map<string, number>} by a chat's id */
  const tries = new Map();
  const thinkers = new Set(); // models whose first answer had thoughts only
  const field = /** @type {HTMLSelectElement} */ (byId("titles"));
  field.value = titlesWhen();
  field.addEventListener("input", (event) => {
    event.stopPropagation(); // it is no setting of requests
    localStorage.setItem(KEY, field.value);
  });

  const wanted = () => {
    const { info, messages } = chat.conversation;
    const { loaded } = engine;
    if (chat.busy || engine.isLoading || !loaded || loaded.choice.upstream) return false;
    if (info.private || info.titledBy || (tries.get(info.id) ?? 0) >= MAX_TRIES || !answerOf(messages)) return false;
    const when = titlesWhen();
    return when === "always" || (when === "large" && loaded.stats.memory?.weights >= LARGE);
  };

  const make = async () => {
    if (!wanted()) return;
    const { info, messages } = chat.conversation;
    const controller = (asking = new AbortController());
    tries.set(info.id, (tries.get(info.id) ?? 0) + 1);
    try {
      const wisp = await engine.ready();
      const model = engine.loaded?.stats.model;
      const request = {
        model,
        messages: [{ role: "user", content: promptOf(messages[0], /** @type {Message} */ (answerOf(messages))) }],
        temperature: 0,
        reasoning_effort: /** @type {const} */ ("none"), // thoughts would use up all tokens
        prompt_cache_retention: /** @type {const} */ ("in_memory"),
      };
      const ask = async (/** @type {number} */ max_tokens) => {
        const { signal } = controller;
        const { choices } = await wisp.chat.completions.create({ ...request, max_tokens }, { signal });
        const { content, reasoning_content: thoughts } = choices[0].message;
        if (!content && thoughts) thinkers.add(model);
        return cleaned(content ?? "");
      };
      let title = thinkers.has(model) ? "" : await ask(TOKENS);
      if (thinkers.has(model)) title = await ask(TOKENS_WITH_THOUGHTS);
      tries.set(info.id, MAX_TRIES); // it has answered
      if (title && !info.titledBy) chat.change(info.id, { title, titledBy: "model" });
    } catch {
      // The user asked something, or the model failed: the first question stays the title.
    } finally {
      if (asking === controller) asking = null;
    }
  };

  return {
    /** Something happened: a title is made once the model has been idle for a while. */
    consider() {
      clearTimeout(timer);
      if (chat.busy || engine.isLoading) asking?.abort();
      if (!asking && wanted()) timer = setTimeout(make, QUIET_MS);
    },
  };
}

/** The first answer, if it is complete. @param {Message[]} messages */
function answerOf([question, answer]) {
  return question?.role === "user" && answer?.content && answer.finish && answer.finish !== "error" ? answer : null;
}

/** @param {Message} question @param {Message} answer */
function promptOf(question, answer) {
  const [asked, said] = [question, answer].map(({ content }) => content.slice(0, EXCERPT));
  return `Question: ${asked}\n\nAnswer: ${said}\n\nGive this conversation a title of at most six words. Write only the title.`;
}

/** A model's title without decoration; "" if it is none. @param {string} text */
function cleaned(text) {
  const line = text.trim().split("\n")[0];
  const plain = line.replace(/^(title|titel|titre|título)\s*:\s*/i, "").replace(/[*_`#"“”„«»]/g, "");
  const title = plain.replace(/\s+/g, " ").replace(/\.$/, "").trim();
  return title.length <= LONGEST && !/^<|^\{/.test(title) ? title : "";
}
