/** Makes the request for an answer: as many turns as the context holds, passages of documents, and the settings. */
import { t } from "../../language/phrase.js";
import { wordFields } from "../answer/words.js";
import { samplingFields } from "../settings.js";
import { contentOf, sensesOf, takes, textOf, withMedia, withText } from "./media_parts.js";
import { resultLimit, saidIn, textOfSteps } from "./steps.js";
import { answered, firstSent, lastAnswer, olderTurns } from "./turns.js";
import { fittingEnd, limitsOf, turnsToDrop } from "./window.js";

/**
 * @typedef {import("./database.js").Message} Message
 * @typedef {import("./steps.js").Said[]} Messages in the shape of a request
 * @typedef {Record<string, any> & { messages: Messages, stream: true }} Request
 * @typedef {import("../engine.js").Loaded} Loaded
 * @typedef {import("../settings.js").Settings} Settings
 * @typedef {ReturnType<typeof import("../documents.js").startDocuments>} Documents
 */

const NOT_STORED = { prompt_cache_retention: /** @type {const} */ ("in_memory") };
const TEMPLATE = 64; // tokens that a template adds to a question, at most

/**
 * The request for an answer, which may have begun.
 * @param {Message} message gets the sources, and how many turns are not sent @param {Message[]} history before it
 * @param {{ wisp: import("../../wisp.js").Wisp, loaded: Loaded, documents: Documents, settings: Settings,
 *   isPrivate: boolean, tools?: Record<string, any> }} parts `tools`: fields of a request with tools
 * @returns {Promise<Request>}
 */
export async function requestFor(message, history, { wisp, loaded, documents, settings, isPrivate, tools }) {
  const turns = answered(history);
  const fields = { ...fieldsFor(loaded, settings), ...(isPrivate && !loaded.choice.upstream && NOT_STORED), ...tools };
  const context = contextOf(loaded);
  const limits = context && limitsOf(context, settings.max_tokens, documents.asked());
  const { system } = settings;
  const senses = sensesOf(loaded);
  refuse(turns.at(-1), senses, loaded.name);
  const resultMost = resultLimit(context);
  const said = saidIn(message.steps, resultMost);
  const messagesOf = (/** @type {number} */ dropped) => [
    ...promptMessages(turns, dropped, { system, senses, resultMost }),
    ...said,
  ];
  let begun = message.content;
  const added = `${textOfSteps(message.steps)}${tools ? JSON.stringify(tools) : ""}`;
  if (limits && (begun || !surelyFits(turns, loaded, { settings, added, most: limits.most }))) {
    const fitted = await fit({ turns, begun, context, limits, messagesOf, tools: Boolean(tools) }, (part) =>
      countOf(wisp, { ...fields, ...part }, history),
    );
    message.dropped = fitted.dropped;
    begun = fitted.begun;
  } else if (limits || message.dropped === undefined) {
    message.dropped = droppedBefore(turns, context);
  }
  const messages = messagesOf(message.dropped ?? 0);
  const at = messages.findLastIndex(({ role }) => role === "user");
  const question = messages[at];
  const asked = textOf(question.content);
  const found = asked && (await documents.ask(asked, messages.slice(0, at), begun));
  if (found) {
    message.sources = found.sources;
    question.content = withText(question.content, found.content);
  }
  return { ...fields, ...continued(messages, begun), stream: true, stream_options: { include_usage: true } };
}

/**
 * The tokens of a chat, without the turns that do not fit, and how many those are. Where the last answer tells both, nothing
 * is counted.
 * @param {Message[]} history
 * @param {{ wisp: import("../../wisp.js").Wisp, loaded: Loaded, context: number, settings: Settings, passages: boolean }} parts
 *   `passages`: of documents, which questions get
 * @returns {Promise<{ used: number, dropped: number }>}
 */
export async function usageOf(history, { wisp, loaded, context, settings, passages }) {
  const last = lastAnswer(history);
  const { prompt, tokens = 0 } = last?.stats ?? {};
  if (prompt !== undefined && last?.model === loaded.name && last === history.at(-1))
    return { used: prompt + tokens, dropped: last.dropped ?? 0 };
  const turns = answered(history);
  const parts = { system: settings.system, senses: sensesOf(loaded), resultMost: resultLimit(context) };
  /** @type {Map<number, Promise<number>>} */
  const counted = new Map(); // by dropped turns
  const count = (/** @type {number} */ dropped) => {
    const known = counted.get(dropped);
    if (known) return known;
    const found = countOf(
      wisp,
      { model: loaded.stats.model, messages: promptMessages(turns, dropped, parts) },
      history,
    );
    counted.set(dropped, found);
    return found;
  };
  if (!turns.length) return { used: 0, dropped: 0 };
  const dropped = await dropTurns(turns, context, limitsOf(context, settings.max_tokens, passages), count);
  return { used: await count(dropped), dropped };
}

/** The tokens of a model's context; null where it is not known, as on other servers. @param {Loaded} loaded */
export function contextOf({ choice, stats }) {
  return choice.upstream ? null : /** @type {number | null} */ (stats.context_length ?? null);
}

/**
 * The turns that fit, and as much of the begun answer.
 * @param {{ turns: Message[], begun: string, context: number, limits: import("./window.js").Limits,
 *   messagesOf: (dropped: number) => Messages, tools: boolean }} about
 * @param {(part: { messages: Messages }) => Promise<number>} count
 */
async function fit({ turns, begun, context, limits, messagesOf, tools }, count) {
  const questions = turns.filter(({ role }) => role === "user").length;
  const tokens = (/** @type {number} */ dropped, text = begun) => count(continued(messagesOf(dropped), text));
  const dropped = await dropTurns(turns, context, limits, tokens);
  if (dropped < questions - 1) return { dropped, begun };
  if (begun && (await tokens(dropped)) > limits.most)
    begun = await fittingEnd(begun, limits.target, (text) => tokens(dropped, text));
  const least = await tokens(dropped);
  if (least <= limits.last) return { dropped, begun };
  const message = tools
    ? t(
        "The question, the system prompt and the tools have {least} tokens. The context holds {context}, the answer included.",
        { least, context },
      )
    : t("The question and the system prompt have {least} tokens. The context holds {context}, the answer included.", {
        least,
        context,
      });
  throw Object.assign(new Error(`${message}`), { code: "context_length_exceeded" });
}

/**
 * How many of the oldest turns to leave out. The prompt of a long chat is not counted as a whole.
 * @param {Message[]} turns @param {number} context @param {import("./window.js").Limits} limits
 * @param {(dropped: number) => Promise<number>} count
 */
function dropTurns(turns, context, limits, count) {
  const questions = turns.filter(({ role }) => role === "user").length;
  return turnsToDrop(questions, droppedBefore(turns, context), limits, count, olderTurns(turns, limits.characters));
}

/** How many turns the last request left out, if it was for the same context. @param {Message[]} turns @param {number | null} context */
function droppedBefore(turns, context) {
  const last = lastAnswer(turns);
  return last && last.stats?.context === context ? (last.dropped ?? 0) : 0;
}

/**
 * Whether the next prompt surely fits, by what the last one had: then no tokens need to be counted.
 * @param {Message[]} turns @param {Loaded} loaded
 * @param {{ settings: Settings, added: string, most: number }} more `added`: text of the prompt besides the turns
 */
function surelyFits(turns, loaded, { settings, added, most }) {
  const last = lastAnswer(turns);
  const { prompt, tokens = 0, context } = last?.stats ?? {};
  if (!last || prompt === undefined || last.model !== loaded.name || context !== contextOf(loaded)) return false;
  const later = turns.slice(turns.indexOf(last) + 1);
  if (later.some(({ media }) => media?.length)) return false;
  const texts = later.map(({ content, steps }) => content + textOfSteps(steps));
  const bytes = new TextEncoder().encode([settings.system, added, ...texts].join("")).length; // a token has a byte at least
  return prompt + tokens + bytes + TEMPLATE <= most;
}

/**
 * The messages of a request, the system prompt first.
 * @param {Message[]} turns @param {number} dropped
 * @param {{ system: string, senses: import("./media_parts.js").Senses, resultMost: number }} parts @returns {Messages}
 */
function promptMessages(turns, dropped, { system, senses, resultMost }) {
  const sent = turns.slice(firstSent(turns, dropped)).flatMap((message) => {
    const { role, content, media, steps } = message;
    const whole = content || media?.length ? [{ role, content: contentOf(message, senses) }] : [];
    return [...saidIn(steps, resultMost), ...whole];
  });
  return system.trim() ? [{ role: "system", content: system.trim() }, ...sent] : sent;
}

/** @param {Messages} messages @param {string} begun */
function continued(messages, begun) {
  if (!begun) return { messages };
  const tools = { tools: undefined, tool_choice: undefined }; // which cannot be called in the middle of a text
  return { messages: [...messages, { role: "assistant", content: begun }], continue_final_message: true, ...tools };
}

/**
 * @param {import("../../wisp.js").Wisp} wisp @param {{ messages: Messages } & Record<string, any>} request
 * @param {Message[]} history with the media that the request names
 */
async function countOf(wisp, request, history) {
  return (await wisp.countTokens(await withMedia(request, history, false))).tokens;
}

/** Refuses a question with media that the model does not take. @param {Message | undefined} question @param {import("./media_parts.js").Senses} senses @param {string} name of the model */
function refuse(question, senses, name) {
  const lacking = question?.media?.find(({ kind }) => kind !== "file" && !takes(senses, kind));
  if (!lacking) return;
  const message =
    lacking.kind === "audio"
      ? t("{name} does not hear sound.", { name })
      : t("{name} does not see pictures.", { name });
  throw Object.assign(new Error(`${message}`), { code: "no_projector" });
}

/** The fields of a request that depend on model and settings. @param {Loaded} loaded @param {Settings} settings */
function fieldsFor({ choice, stats }, settings) {
  return {
    model: /** @type {string} */ (choice.upstream ? choice.model : stats.model), // other tabs may change the default model
    ...samplingFields(settings, choice.upstream !== undefined),
    ...(choice.upstream ? {} : wordFields()),
  };
}
