/**
 * The Prompt API over any model: `globalThis.LanguageModel ??= languageModel(Wisp, { model })` for pages whose browser has
 * none, or another model. Source: https://webmachinelearning.github.io/prompt-api/
 *
 * A session is its messages. The engine finds what it has computed for them by their tokens, so a clone reuses what is
 * still cached. append() computes its messages, so the next prompt begins after them.
 */
import { on, progressTo } from "./prompt_events.js";
import { readMedia } from "./prompt_media.js";
import { asked, formOf, messagesOf, told } from "./prompt_messages.js";
import { mayTake, present } from "./prompt_model.js";
import {
  callsAreReturned,
  checkOptions,
  inputsOf,
  kindsOf,
  modeOf,
  PARAMS,
  samplingIsPossible,
  samplingOf,
} from "./prompt_options.js";
import { computeAhead, streamed, tokensOf } from "./prompt_requests.js";
import { contentOfCalls, run, toolsOf } from "./prompt_tools.js";
import { withSignal } from "./with_signal.js";

export { LanguageModelToolCall, LanguageModelToolError, LanguageModelToolSuccess } from "./prompt_tools.js";

/**
 * @typedef {import("./language_model.d.ts").LanguageModelPrompt} Prompt
 * @typedef {import("./language_model.d.ts").LanguageModelCreateOptions} CreateOptions
 * @typedef {import("./language_model.d.ts").LanguageModelPromptOptions} PromptOptions
 * @typedef {import("./prompt_messages.js").Message} Message
 * @typedef {import("./prompt_messages.js").Content} Content
 * @typedef {import("./prompt_options.js").Kind} Kind
 * @typedef {import("../wisp.js").Wisp} Wisp
 * @typedef {(piece: string | Content) => void} Push  takes what an answer has next
 *
 * @typedef {object} State  of a session
 * @property {Wisp} engine
 * @property {string} model its name in requests
 * @property {CreateOptions} options
 * @property {Set<string>} inputs types of content that it takes
 * @property {{ temperature: number, topK: number }} sampling
 * @property {import("./types.d.ts").Tool[] | undefined} tools OpenAI's
 * @property {Message[]} initial which stay when the context overflows
 * @property {Message[]} turns the others
 * @property {number} usage tokens of all messages
 * @property {number} window tokens of the context
 */
const MOST_TOOL_ROUNDS = 8; // of calls, until the model must have answered
const ANSWER_PART = 4; // a quarter of the context stays free for an answer, if turns can be dropped
const OVERFLOWS = ["contextoverflow", "quotaoverflow"]; // the second is the name before 2026

/** The error for an input that exceeds the context. @param {number} requested tokens @param {number} quota */
function tooLarge(requested, quota) {
  const message = `The input has ${requested} tokens; ${quota} are possible.`;
  const QuotaExceeded = /** @type {any} */ (globalThis).QuotaExceededError;
  if (QuotaExceeded) return new QuotaExceeded(message, { requested, quota });
  return Object.assign(new DOMException(message, "QuotaExceededError"), { requested, quota });
}

/**
 * The class LanguageModel over an engine.
 * @param {{ create: (options?: any) => Promise<Wisp> }} wisp the SDK's class Wisp
 * @param {import("../wisp.js").LoadRequest} [request] the model, as engine.load() takes it; default: the catalog's default
 * @returns {import("./language_model.d.ts").LanguageModelConstructor}
 */
export function languageModel(wisp, request = {}) {
  let creating = 0; // sessions whose model is being downloaded

  class LanguageModel extends EventTarget {
    /** @type {State} */
    #state;
    #ended = new AbortController();
    #last = Promise.resolve(); // prompts of a session run one after the other
    #pending = 0; // of them

    /** @param {State} state use `LanguageModel.create()` */
    constructor(state) {
      super();
      if (!state?.engine) throw new TypeError("Illegal constructor");
      this.#state = state;
      for (const name of OVERFLOWS) on(this, name);
    }

    /** The sampling of sessions that name none, and the limits. */
    static async params() {
      return { ...PARAMS };
    }

    /** @param {import("./language_model.d.ts").LanguageModelCreateCoreOptions} [options] */
    static async availability(options = {}) {
      try {
        checkOptions(options);
      } catch (/** @type {any} */ error) {
        if (error.name === "NotSupportedError") return "unavailable";
        throw error;
      }
      if (!samplingIsPossible(options)) return "unavailable";
      const engine = await wisp.create();
      if (!(await mayTake(engine, request, kindsOf(options)))) return "unavailable";
      if (await present(engine, request)) return "available";
      return creating ? "downloading" : "downloadable";
    }

    /** @param {CreateOptions} [options] */
    static async create(options = {}) {
      checkOptions(options);
      const { signal, monitor, initialPrompts = [] } = options;
      signal?.throwIfAborted();
      const [sampling, tools] = [samplingOf(options), toolsOf(options.tools)];
      const [kinds, inputs] = [kindsOf(options), inputsOf(options)];
      const reading = readLater(messagesOf(initialPrompts, inputs, { initial: true }).messages);
      const target = new EventTarget();
      on(target, "downloadprogress");
      monitor?.(/** @type {any} */ (target));
      const report = progressTo(target);
      creating++;
      try {
        const engine = await withSignal(wisp.create(), signal);
        const messages = await withSignal(reading, signal);
        if (!(await withSignal(mayTake(engine, request, kinds), signal))) throw unsupported(kinds);
        report(0);
        const onProgress = (/** @type {import("./connection.js").Progress} */ { stage, loaded, total }) => {
          if (stage === "download" && total) report(loaded / total);
        };
        const stats = await withSignal(engine.load(request, { signal, onProgress }), signal);
        report(1);
        if (!kinds.every((kind) => stats.media?.[kind])) throw unsupported(kinds);
        const state = {
          engine,
          model: stats.model,
          options,
          inputs,
          sampling,
          tools,
          initial: messages,
          turns: [],
          usage: 0,
          window: stats.context_length,
        };
        state.usage = await tokensOf(state, messages);
        if (state.usage >= state.window) throw tooLarge(state.usage, state.window);
        signal?.throwIfAborted();
        const session = new LanguageModel(state);
        const end = () => session.#ended.abort(signal?.reason);
        signal?.addEventListener("abort", end, { signal: session.#ended.signal });
        return session;
      } finally {
        creating--;
      }
    }

    get contextUsage() {
      return this.#state.usage;
    }

    get contextWindow() {
      return this.#state.window;
    }

    get temperature() {
      return this.#state.sampling.temperature;
    }

    get topK() {
      return this.#state.sampling.topK;
    }

    get samplingMode() {
      return modeOf(this.#state.options);
    }

    // The names before 2026, which pages use.

    get inputUsage() {
      return this.contextUsage;
    }

    get inputQuota() {
      return this.contextWindow;
    }

    /** @param {Prompt} input @param {PromptOptions} [options] */
    measureInputUsage(input, options) {
      return this.measureContextUsage(input, options);
    }

    /** @param {Prompt} input @param {PromptOptions} [options] @returns {Promise<string | Content[]>} */
    async prompt(input, options = {}) {
      let text = "";
      /** @type {Content[]} */
      const calls = [];
      await this.#answer(input, options, (piece) => {
        if (typeof piece === "string") text += piece;
        else calls.push(piece);
      });
      if (!calls.length) return text;
      return text ? [{ type: "text", value: text }, ...calls] : calls;
    }

    /** @param {Prompt} input @param {PromptOptions} [options] @returns {ReadableStream<string | Content>} */
    promptStreaming(input, options = {}) {
      options.signal?.throwIfAborted();
      const cancelled = new AbortController();
      const signal = AbortSignal.any([cancelled.signal, ...(options.signal ? [options.signal] : [])]);
      return new ReadableStream({
        start: (controller) => {
          this.#answer(input, { ...options, signal }, (piece) => controller.enqueue(piece)).then(
            () => controller.close(),
            (error) => cancelled.signal.aborted || controller.error(error),
          );
        },
        cancel: () => cancelled.abort(),
      });
    }

    /** Adds messages without an answer. @param {Prompt} input @param {{ signal?: AbortSignal }} [options] */
    async append(input, { signal } = {}) {
      const reading = readLater(this.#read(input).messages);
      const add = async (/** @type {AbortSignal} */ any) => {
        const messages = await reading;
        const turns = await this.#fitting(messages, 0);
        any.throwIfAborted();
        await this.#keep(turns, messages, any);
        return messages.length > 0;
      };
      await this.#inTurn(signal, add, async (any, added) => {
        if (added) await computeAhead(this.#state, this.#messages(), any);
      });
    }

    /**
     * Tokens that an input would add; one that begins with a system prompt is measured by itself.
     * @param {Prompt} input @param {PromptOptions} [options]
     */
    async measureContextUsage(input, { responseConstraint, omitResponseConstraintInput = false, signal } = {}) {
      const any = this.#signal(signal);
      any.throwIfAborted();
      const sentence = omitResponseConstraintInput ? "" : formOf(responseConstraint).told;
      const read = await withSignal(readMedia(asked(messagesOf(input, this.#state.inputs).messages)), any);
      const sent = told(read, sentence);
      if (sent[0]?.role === "system") return withSignal(tokensOf(this.#state, sent), any);
      const tokens = withSignal(tokensOf(this.#state, [...this.#messages(), ...sent]), any);
      return Math.max(0, (await tokens) - this.#state.usage);
    }

    /** A session with the same messages, which goes on by itself. @param {{ signal?: AbortSignal }} [options] */
    async clone({ signal } = {}) {
      const any = this.#signal(signal);
      any.throwIfAborted();
      const { initial, turns } = this.#state;
      const clone = new LanguageModel({ ...this.#state, initial: [...initial], turns: [...turns] });
      await null; // the caller may abort what it has just called
      any.throwIfAborted();
      return clone;
    }

    destroy() {
      this.#ended.abort(new DOMException("The session was destroyed.", "AbortError"));
    }

    #messages() {
      return [...this.#state.initial, ...this.#state.turns];
    }

    /** The messages of an input. @param {Prompt} input */
    #read(input) {
      const begun = this.#pending > 0 || this.#messages().length > 0;
      return messagesOf(input, this.#state.inputs, { begun });
    }

    /**
     * Takes over turns and new messages, all or, once the signal is aborted, none; a system prompt stays.
     * @param {Message[]} before turns @param {Message[]} messages @param {AbortSignal} signal
     */
    async #keep(before, messages, signal) {
      const state = this.#state;
      const system = messages[0]?.role === "system" ? 1 : 0;
      const initial = [...state.initial, ...messages.slice(0, system)];
      const turns = [...before, ...messages.slice(system)];
      const usage = await tokensOf(state, [...initial, ...turns]);
      signal.throwIfAborted();
      Object.assign(state, { initial, turns, usage });
    }

    /** @param {AbortSignal | undefined} signal of a call */
    #signal(signal) {
      return AbortSignal.any([this.#ended.signal, ...(signal ? [signal] : [])]);
    }

    /**
     * Runs work after that of earlier calls. Later calls wait for `after`, too; this one does not.
     * @template T @param {AbortSignal | undefined} signal @param {(signal: AbortSignal) => Promise<T>} work
     * @param {(signal: AbortSignal, done: T) => Promise<void>} [after] @returns {Promise<T>}
     */
    async #inTurn(signal, work, after = async () => {}) {
      const any = this.#signal(signal);
      any.throwIfAborted();
      this.#pending++;
      const done = this.#last.then(() => (any.throwIfAborted(), work(any))).finally(() => this.#pending--);
      this.#last = done.then((result) => after(any, result)).catch(() => undefined);
      return withSignal(done, any);
    }

    /**
     * Answers an input, and runs the tools that the model calls. The session has the input and the answer afterwards.
     * @param {Prompt} input @param {PromptOptions} options @param {Push} push
     */
    async #answer(input, { responseConstraint, omitResponseConstraintInput = false, signal }, push) {
      const { messages, prefix } = this.#read(input);
      const { form, told: sentence } = formOf(responseConstraint);
      const reading = readLater(asked(messages));
      return this.#inTurn(signal, async (any) => {
        const sent = told(await reading, omitResponseConstraintInput ? "" : sentence);
        const state = this.#state;
        const turns = await this.#fitting(sent, Math.floor(state.window / ANSWER_PART));
        /** @type {Message[]} */
        const added = [];
        for (let round = 0; ; round++) {
          const tools = round < MOST_TOOL_ROUNDS ? state.tools : undefined;
          const { temperature, topK } = state.sampling;
          const request = {
            model: state.model,
            messages: [...state.initial, ...turns, ...sent, ...added],
            tools,
            temperature,
            top_k: topK,
            ...form,
          };
          if (prefix !== null) Object.assign(request, { continue_final_message: true, tools: undefined });
          const message = await streamed(state.engine, request, any, push);
          if (prefix !== null) /** @type {Message} */ (sent.at(-1)).content += message.content;
          else added.push(message);
          if (!message.tool_calls?.length) break;
          if (callsAreReturned(state.options)) {
            contentOfCalls(message).forEach(push);
            break;
          }
          added.push(
            ...(await Promise.all(
              message.tool_calls.map((/** @type {any} */ call) => run(state.options.tools ?? [], call)),
            )),
          );
          any.throwIfAborted();
        }
        await this.#keep(turns, [...sent, ...added], any);
      });
    }

    /**
     * The turns without the oldest that do not fit beside messages and `reserve` tokens. Messages that begin with a tool's
     * response belong to the turn with the question and the call.
     * @param {Message[]} messages @param {number} reserve
     */
    async #fitting(messages, reserve) {
      const state = this.#state;
      const begun = messages[0]?.role === "tool" ? state.turns.findLastIndex(({ role }) => role === "user") : -1;
      const needed = begun < 0 ? [] : state.turns.slice(begun);
      const least = await tokensOf(state, [...state.initial, ...needed, ...messages]);
      if (least >= state.window) throw tooLarge(least, state.window);
      const most = Math.max(least, state.window - Math.max(1, reserve));
      let turns = state.turns;
      while ((await tokensOf(state, [...state.initial, ...turns, ...messages])) > most) {
        const next = turns.findIndex((message, i) => i > 0 && message.role === "user");
        turns = next < 0 ? needed : turns.slice(next);
      }
      if (turns.length < state.turns.length) OVERFLOWS.forEach((name) => this.dispatchEvent(new Event(name)));
      return turns;
    }
  }
  return /** @type {any} */ (LanguageModel);
}

/** Reads media at once, for work that waits for earlier calls. @param {Message[]} messages */
function readLater(messages) {
  const reading = readMedia(messages);
  reading.catch(() => undefined); // the work may never begin
  return reading;
}

/** @param {Kind[]} kinds */
function unsupported(kinds) {
  const message = `The model does not take content of all these types: ${kinds.join(", ")}. It needs a projector for them.`;
  return new DOMException(message, "NotSupportedError");
}
