/** Makes the request for an answer: as many turns as the context holds, passages of documents, and the settings. */
import { t } from "../../language/phrase.js";
import { wordFields } from "../answer/words.js";
import { samplingFields } from "../settings.js";
import { answered, firstSent, lastAnswer } from "./turns.js";
import { fittingEnd, limitsOf, turnsToDrop } from "./window.js";

/**
 * @typedef {import("./database.js").Message} Message
 * @typedef {{ role: string, content: any }[]} Messages in the shape of a request
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
 *   isPrivate: boolean }} parts
 * @returns {Promise<Request>}
 */
export async function requestFor(message, history, { wisp, loaded, documents, settings, isPrivate }) {
  const turns = answered(history);
  const fields = { ...fieldsFor(loaded, settings), ...(isPrivate && !loaded.choice.upstream && NOT_STORED) };
  const context = contextOf(loaded);
  const limits = context && limitsOf(context, settings.max_tokens, documents.asked());
  let begun = message.content;
  if (limits && (begun || !surelyFits(turns, loaded, settings, limits.most))) {
    const fitted = await fit({ turns, begun, context, limits, system: settings.system }, (part) =>
      countOf(wisp, { ...fields, ...part }),
    );
    message.dropped = fitted.dropped;
    begun = fitted.begun;
  } else if (limits || message.dropped === undefined) {
    message.dropped = droppedBefore(turns, context);
  }
  const messages = promptMessages(turns, message.dropped ?? 0, settings.system);
  const question = messages[messages.length - 1];
  const found = await documents.ask(question.content, messages.slice(0, -1), begun);
  if (found) {
    message.sources = found.sources;
    question.content = found.content;
  }
  return { ...fields, ...continued(messages, begun), stream: true, stream_options: { include_usage: true } };
}

/**
 * The tokens of a chat as the last answer left it: how much of the context it fills.
 * @param {Message[]} history @param {import("../../wisp.js").Wisp} wisp @param {Loaded} loaded @param {Settings} settings
 * @returns {Promise<number>}
 */
export async function tokensOf(history, wisp, loaded, settings) {
  const last = lastAnswer(history);
  const known = last?.stats?.prompt !== undefined && last.model === loaded.name && last === history.at(-1);
  if (known) return /** @type {number} */ (last.stats?.prompt) + /** @type {number} */ (last.stats?.tokens);
  const turns = answered(history);
  if (!turns.length) return 0;
  const messages = promptMessages(turns, droppedBefore(turns, contextOf(loaded)), settings.system);
  return countOf(wisp, { model: loaded.stats.model, messages });
}

/** The tokens of a model's context; null where it is not known, as on other servers. @param {Loaded} loaded */
export function contextOf({ choice, stats }) {
  return choice.upstream ? null : /** @type {number | null} */ (stats.context_length ?? null);
}

/**
 * The turns that fit, and as much of the begun answer.
 * @param {{ turns: Message[], begun: string, context: number, limits: import("./window.js").Limits, system: string }} about
 * @param {(part: { messages: Messages }) => Promise<number>} count
 */
async function fit({ turns, begun, context, limits, system }, count) {
  const questions = turns.filter(({ role }) => role === "user").length;
  const tokens = (/** @type {number} */ dropped, text = begun) =>
    count(continued(promptMessages(turns, dropped, system), text));
  const dropped = await turnsToDrop(questions, droppedBefore(turns, context), limits, tokens);
  if (dropped < questions - 1) return { dropped, begun };
  if (begun && (await tokens(dropped)) > limits.most)
    begun = await fittingEnd(begun, limits.target, (text) => tokens(dropped, text));
  const least = await tokens(dropped);
  if (least <= limits.last) return { dropped, begun };
  const message = t(
    "The question and the system prompt have {least} tokens. The context holds {context}, the answer included.",
    { least, context },
  );
  throw Object.assign(new Error(`${message}`), { code: "context_length_exceeded" });
}

/** How many turns the last request left out, if it was for the same context. @param {Message[]} turns @param {number | null} context */
function droppedBefore(turns, context) {
  const last = lastAnswer(turns);
  return last && last.stats?.context === context ? (last.dropped ?? 0) : 0;
}

/**
 * Whether the next prompt surely fits, by what the last one had: then no tokens need to be counted.
 * @param {Message[]} turns @param {Loaded} loaded @param {Settings} settings @param {number} most
 */
function surelyFits(turns, loaded, { system }, most) {
  const last = lastAnswer(turns);
  const { prompt, tokens = 0, context } = last?.stats ?? {};
  if (!last || prompt === undefined || last.model !== loaded.name || context !== contextOf(loaded)) return false;
  const added = turns.slice(turns.indexOf(last) + 1).map(({ content }) => content);
  const bytes = new TextEncoder().encode([system, ...added].join("")).length; // a token has a byte at least
  return prompt + tokens + bytes + TEMPLATE <= most;
}

/** The messages of a request, the system prompt first. @param {Message[]} turns @param {number} dropped @param {string} system @returns {Messages} */
function promptMessages(turns, dropped, system) {
  const sent = turns.slice(firstSent(turns, dropped)).map(({ role, content }) => ({ role, content }));
  return system.trim() ? [{ role: "system", content: system.trim() }, ...sent] : sent;
}

/** @param {Messages} messages @param {string} begun */
function continued(messages, begun) {
  if (!begun) return { messages };
  return { messages: [...messages, { role: "assistant", content: begun }], continue_final_message: true };
}

/** @param {import("../../wisp.js").Wisp} wisp @param {{ messages: Messages } & Record<string, any>} request */
async function countOf(wisp, request) {
  return (await wisp.countTokens(request)).tokens;
}

/** The fields of a request that depend on model and settings. @param {Loaded} loaded @param {Settings} settings */
function fieldsFor({ choice, stats }, settings) {
  return {
    model: /** @type {string} */ (choice.upstream ? choice.model : stats.model), // other tabs may change the default model
    ...samplingFields(settings, choice.upstream !== undefined),
    ...(choice.upstream ? {} : wordFields()),
  };
}
