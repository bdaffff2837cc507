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
const TOKENS = [24, 512]; // of the answer; the second time for a model that thinks although it is told not to
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
  const tried = new Set();
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
    if (info.private || info.titledBy || tried.has(info.id) || !answerOf(messages)) return false;
    const when = titlesWhen();
    return when === "always" || (when === "large" && loaded.stats.memory?.weights >= LARGE);
  };

  const make = async () => {
    if (!wanted()) return;
    const { info, messages } = chat.conversation;
    const controller = (asking = new AbortController());
    try {
      const wisp = await engine.ready();
      const request = {
        model: engine.loaded?.stats.model,
        messages: [{ role: "user", content: promptOf(messages[0], /** @type {Message} */ (answerOf(messages))) }],
        temperature: 0,
        reasoning_effort: /** @type {const} */ ("none"), // thoughts would use up all tokens
        prompt_cache_retention: /** @type {const} */ ("in_memory"),
      };
      let title = "";
      for (const max_tokens of TOKENS) {
        const { choices } = await wisp.chat.completions.create(
          { ...request, max_tokens },
          { signal: controller.signal },
        );
        const { content, reasoning_content: thoughts } = choices[0].message;
        title = cleaned(content ?? "");
        if (content || !thoughts) break;
      }
      tried.add(info.id);
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
export function cleaned(text) {
  const line = text.trim().split("\n")[0];
  const plain = line.replace(/^(title|titel|titre|título)\s*:\s*/i, "").replace(/[*_`#"“”„«»]/g, "");
  const title = plain.replace(/\s+/g, " ").replace(/\.$/, "").trim();
  return title.length <= LONGEST && !/^<|^\{/.test(title) ? title : "";
}
