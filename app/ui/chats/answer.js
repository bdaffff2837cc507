/** One answer: asks the model and adds what streams back to the message. */
import { setName } from "../address.js";
import { addCallParts } from "../../sdk/call_parts.js";
import { withWords } from "../answer/words.js";
import { withMedia } from "./media_parts.js";
import { contextOf, requestFor } from "./request.js";
import { answered } from "./turns.js";

/**
 * @typedef {import("./database.js").Message} Message
 * @typedef {import("./database.js").Cut} Cut
 * @typedef {import("../engine.js").Loaded} Loaded
 *
 * @typedef {{ ready: () => Promise<import("../../wisp.js").Wisp>, loaded: Loaded | null, forgetAfter: (error: unknown) => void }} Answering
 *
 * @typedef {object} Asked
 * @property {Answering} engine with the model that answers
 * @property {import("./request.js").Documents} documents
 * @property {import("../settings.js").Settings} settings
 * @property {boolean} isPrivate nothing of it is stored
 * @property {Record<string, any>} [tools] fields of a request with tools
 * @property {AbortSignal} signal
 * @property {() => void} begins the request is about to be sent @property {() => void} grows the message has more text
 */

/**
 * Streams an answer into a message, which may have begun. Resolves to its tokens, where the server tells them, else to 0.
 * Rejects with null when it is aborted.
 * @param {Message} message @param {Message[]} history the messages before it @param {Asked} asked
 */
export async function stream(message, history, asked) {
  const { engine, documents, settings, isPrivate, tools, signal, begins, grows } = asked;
  /** @type {Promise<never>} */
  const stopped = new Promise((_, reject) => signal.addEventListener("abort", () => reject(null)));
  const wisp = await Promise.race([engine.ready(), stopped]);
  const loaded = /** @type {Loaded} */ (engine.loaded);
  message.model = loaded.name;
  message.upstream = loaded.choice.upstream;
  const started = performance.now();
  const resumed = canResume(message, loaded) ? message.cut : undefined;
  const begun = resumed ? resumed.begun : message.content;
  const parts = { wisp, loaded, documents, settings, isPrivate, tools };
  const send = async () => {
    const request = resumed?.request ?? (await Promise.race([requestFor(message, history, parts), stopped]));
    begins();
    const options = { signal, resume: resumed?.journal };
    const sent = await withMedia(/** @type {any} */ (request), history, loaded.choice.upstream !== undefined);
    const chunks = await wisp.chat.completions.create(sent, options);
    return { request, chunks };
  };
  /** @returns {ReturnType<typeof send>} */
  const sendWhatFits = () =>
    send().catch((error) => {
      if (signal.aborted || !isTooLong(error) || !dropMore(message, history)) throw error;
      return sendWhatFits(); // another server's context is not known until it refuses
    });
  const { request, chunks } = await sendWhatFits();
  const fresh = { content: begun ?? "", stats: undefined, words: undefined, toolCalls: undefined };
  Object.assign(message, fresh, resumed && { reasoning: undefined });
  if (chunks.journal) message.cut = { request, journal: chunks.journal, begun };
  else delete message.cut;
  if (chunks.journal && request.logprobs) message.trace = { request, journal: chunks.journal, begun };
  let tokens = 0;
  for await (const chunk of chunks) {
    read(chunk, message, started, contextOf(loaded));
    tokens = chunk.usage?.completion_tokens ?? tokens;
    grows();
  }
  message.finish ??= "stop";
  return tokens;
}

/** Whether a server refused a chat because of its length; only OpenAI has a code for that. @param {any} error */
function isTooLong({ code, message }) {
  return code === "context_length_exceeded" || /context (length|size|window)|too many tokens/i.test(message ?? "");
}

/** Leaves out half of the turns that were sent. @param {Message} message @param {Message[]} history @returns {boolean} */
function dropMore(message, history) {
  const questions = answered(history).filter(({ role }) => role === "user").length;
  const dropped = message.dropped ?? 0;
  const older = questions - 1 - dropped;
  if (older > 0) message.dropped = dropped + Math.ceil(older / 2);
  return older > 0;
}

/** The same answer with as many tokens more as it was cut at. @param {Cut | undefined} cut */
export function longer(cut) {
  if (!cut) return undefined;
  const { request, journal } = cut;
  const choices = journal.choices.map((choice) => choice && { ...choice, closed: false });
  const had = choices[0]?.batches.flat().length ?? 0;
  const limit = request.max_tokens && had + request.max_tokens;
  return { ...cut, request: { ...request, max_tokens: limit }, journal: { ...journal, choices, over: false } };
}

/**
 * Whether an answer goes on exactly where it was cut. It cannot in another model, or if it filled the context: then older
 * turns are left out.
 * @param {Message} message @param {Loaded} loaded
 */
function canResume({ cut, stats }, loaded) {
  const context = contextOf(loaded);
  if (!cut || !context || setName(cut.request.model ?? "") !== loaded.stats.model) return false;
  return !stats?.prompt || stats.prompt + stats.tokens < context;
}

/**
 * Applies one chat.completion.chunk to a message.
 * @param {any} chunk @param {Message} message @param {number} started ms @param {number | null} context
 */
function read(chunk, message, started, context) {
  const now = performance.now();
  const choice = chunk.choices?.[0];
  const { content, reasoning_content: thought, tool_calls: calls } = choice?.delta ?? {};
  const answers = content && !message.content;
  if (choice?.logprobs?.content) message.words = withWords(message.words, choice.logprobs.content);
  if (calls) addCallParts((message.toolCalls ??= []), calls);
  if (thought) message.reasoning = (message.reasoning ?? "") + thought;
  if (content) message.content += content;
  if (content || thought) {
    message.stats ??= { tokens: 0, perSecond: 0, firstMs: now - started };
    message.stats.tokens += 1;
    const elapsed = now - started - message.stats.firstMs;
    if (thought || (answers && message.reasoning)) message.thoughtMs = Math.max(message.thoughtMs ?? 0, elapsed);
    message.stats.perSecond = elapsed > 0 ? ((message.stats.tokens - 1) * 1000) / elapsed : 0;
  }
  if (choice?.finish_reason) message.finish = choice.finish_reason === "length" ? "length" : "stop";
  if (message.stats && chunk.usage) {
    message.stats.tokens = chunk.usage.completion_tokens;
    message.stats.prompt = chunk.usage.prompt_tokens;
    message.stats.context = context;
    message.stats.cached = chunk.usage.prompt_tokens_details?.cached_tokens;
  }
  if (message.stats && chunk.timings?.predicted_per_second) {
    message.stats.perSecond = chunk.timings.predicted_per_second;
    message.stats.firstMs = chunk.timings.ttft_ms ?? message.stats.firstMs;
  }
}
