/**
 * The Prompt API over any model: `globalThis.LanguageModel ??= languageModel(Wisp, { model })` for pages whose browser has
 * none, or another model. Source: https://webmachinelearning.github.io/prompt-api/
 *
 * A session is its messages. The engine finds what it has computed for them by their tokens, so a clone reuses what is
 * still cached. append() computes nothing ahead.
 */
import { readMedia, withAddresses } from "./prompt_media.js";
import { checkOptions, formOf, kindsOf, messagesOf, told, toolsOf } from "./prompt_messages.js";
import { mayTake, present } from "./prompt_model.js";

/**
 * @typedef {import("./language_model.d.ts").LanguageModelPrompt} Prompt
 * @typedef {import("./language_model.d.ts").LanguageModelCreateOptions} CreateOptions
 * @typedef {import("./language_model.d.ts").LanguageModelPromptOptions} PromptOptions
 * @typedef {import("./prompt_messages.js").Message} Message
 * @typedef {import("./prompt_messages.js").Kind} Kind
 * @typedef {import("../wisp.js").Wisp} Wisp
 *
 * @typedef {object} State  of a session
 * @property {Wisp} engine
 * @property {string} model its name in requests
 * @property {CreateOptions} options
 * @property {Kind[]} kinds of media that it expects
 * @property {Message[]} initial which stay when the context overflows
 * @property {Message[]} turns the others
 * @property {number} usage tokens of all messages
 * @property {number} window tokens of the context
 */
const MOST_TOOL_ROUNDS = 8; // of calls, until the model must have answered
const ANSWER_PART = 4; // a quarter of the context stays free for an answer

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
    /** @type {((event: Event) => void) | null} */
    #onoverflow = null;

    /** @param {State} state use `LanguageModel.create()` */
    constructor(state) {
      super();
      if (!state?.engine) throw new TypeError("Illegal constructor");
      this.#state = state;
    }

    /** @param {import("./language_model.d.ts").LanguageModelCreateCoreOptions} [options] */
    static async availability(options = {}) {
      try {
        checkOptions(options);
      } catch (/** @type {any} */ error) {
        if (error.name === "NotSupportedError") return "unavailable";
        throw error;
      }
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
      const kinds = kindsOf(options);
      const reading = readLater(messagesOf(initialPrompts, kinds, { initial: true }).messages);
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
          kinds,
          initial: messages,
          turns: [],
          usage: 0,
          window: stats.context_length,
        };
        state.usage = await tokensOf(state, messages);
        if (state.usage >= state.window) throw tooLarge(state.usage, state.window);
        return new LanguageModel(state);
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
      return this.#state.options.temperature ?? 1;
    }

    get topK() {
      return this.#state.options.topK ?? 0; // all tokens
    }

    get oncontextoverflow() {
      return this.#onoverflow;
    }

    set oncontextoverflow(listener) {
      if (this.#onoverflow) this.removeEventListener("contextoverflow", this.#onoverflow);
      this.#onoverflow = typeof listener === "function" ? listener : null;
      if (this.#onoverflow) this.addEventListener("contextoverflow", this.#onoverflow);
    }

    /** @param {Prompt} input @param {PromptOptions} [options] @returns {Promise<string>} */
    async prompt(input, options = {}) {
      let text = "";
      await this.#answer(input, options, (piece) => (text += piece));
      return text;
    }

    /** @param {Prompt} input @param {PromptOptions} [options] @returns {ReadableStream<string>} */
    promptStreaming(input, options = {}) {
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
      const reading = readLater(messagesOf(input, this.#state.kinds).messages);
      return this.#inTurn(signal, async () => {
        const messages = await reading;
        this.#state.turns = [...(await this.#fitting(messages, 0)), ...messages];
        this.#state.usage = await tokensOf(this.#state, this.#messages());
      });
    }

    /** Tokens that an input would add. @param {Prompt} input @param {PromptOptions} [options] */
    async measureContextUsage(input, { responseConstraint, omitResponseConstraintInput = false, signal } = {}) {
      const any = this.#signal(signal);
      any.throwIfAborted();
      const sentence = omitResponseConstraintInput ? "" : formOf(responseConstraint).told;
      const read = await withSignal(readMedia(messagesOf(input, this.#state.kinds).messages), any);
      const tokens = withSignal(tokensOf(this.#state, [...this.#messages(), ...told(read, sentence)]), any);
      return Math.max(0, (await tokens) - this.#state.usage);
    }

    /** A session with the same messages, which goes on by itself. @param {{ signal?: AbortSignal }} [options] */
    async clone({ signal } = {}) {
      this.#signal(signal).throwIfAborted();
      const { initial, turns } = this.#state;
      return new LanguageModel({ ...this.#state, initial: [...initial], turns: [...turns] });
    }

    destroy() {
      this.#ended.abort(new DOMException("The session was destroyed.", "AbortError"));
    }

    #messages() {
      return [...this.#state.initial, ...this.#state.turns];
    }

    /** @param {AbortSignal | undefined} signal of a call */
    #signal(signal) {
      return AbortSignal.any([this.#ended.signal, ...(signal ? [signal] : [])]);
    }

    /**
     * Runs work after that of earlier calls.
     * @template T @param {AbortSignal | undefined} signal @param {(signal: AbortSignal) => Promise<T>} work @returns {Promise<T>}
     */
    async #inTurn(signal, work) {
      const any = this.#signal(signal);
      any.throwIfAborted();
      const done = this.#last.then(() => (any.throwIfAborted(), work(any)));
      this.#last = done.then(
        () => undefined,
        () => undefined,
      );
      return withSignal(done, any);
    }

    /**
     * Answers an input, and runs the tools that the model calls. The session has the input and the answer afterwards.
     * @param {Prompt} input @param {PromptOptions} options @param {(piece: string) => void} push
     */
    async #answer(input, { responseConstraint, omitResponseConstraintInput = false, signal }, push) {
      const { messages, prefix } = messagesOf(input, this.#state.kinds);
      const { form, told: sentence } = formOf(responseConstraint);
      const reading = readLater(messages);
      return this.#inTurn(signal, async (any) => {
        const sent = told(await reading, omitResponseConstraintInput ? "" : sentence);
        const state = this.#state;
        const turns = await this.#fitting(sent, Math.floor(state.window / ANSWER_PART));
        /** @type {Message[]} */
        const added = [];
        for (let round = 0; ; round++) {
          const tools = round < MOST_TOOL_ROUNDS ? toolsOf(state.options.tools) : undefined;
          const { temperature, topK } = state.options;
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
          added.push(
            ...(await Promise.all(
              message.tool_calls.map((/** @type {any} */ call) => run(state.options.tools ?? [], call)),
            )),
          );
          any.throwIfAborted();
        }
        state.turns = [...turns, ...sent, ...added];
        state.usage = await tokensOf(state, this.#messages());
      });
    }

    /**
     * The turns without the oldest that do not fit beside messages and `reserve` tokens.
     * @param {Message[]} messages @param {number} reserve
     */
    async #fitting(messages, reserve) {
      const state = this.#state;
      const most = state.window - Math.max(1, reserve);
      const least = await tokensOf(state, [...state.initial, ...messages]);
      if (least > most) throw tooLarge(least - (await tokensOf(state, state.initial)), most);
      let turns = state.turns;
      while ((await tokensOf(state, [...state.initial, ...turns, ...messages])) > most) {
        const next = turns.findIndex((message, i) => i > 0 && message.role === "user");
        turns = next < 0 ? [] : turns.slice(next);
      }
      if (turns.length < state.turns.length) this.dispatchEvent(new Event("contextoverflow"));
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

/** Tokens of a session's messages. @param {Pick<State, "engine" | "model" | "options">} state @param {Message[]} messages */
async function tokensOf({ engine, model, options }, messages) {
  if (!messages.some(({ role }) => role !== "system")) messages = [...messages, { role: "user", content: "" }];
  const tools = toolsOf(options.tools);
  return withAddresses(messages, async (messages) => (await engine.countTokens({ model, messages, tools })).tokens);
}

/**
 * Streams one answer; its message. @param {Wisp} engine @param {Message} request @param {AbortSignal} signal
 * @param {(piece: string) => void} push
 */
function streamed(engine, request, signal, push) {
  return withAddresses(request.messages, (messages) => received(engine, { ...request, messages }, signal, push));
}

/** @param {Wisp} engine @param {Message} request @param {AbortSignal} signal @param {(piece: string) => void} push */
async function received(engine, request, signal, push) {
  /** @type {Message} */
  const message = { role: "assistant", content: "" };
  const stream = await engine.chat.completions.create(
    { ...request, messages: request.messages, stream: true },
    { signal },
  );
  for await (const { choices } of stream) {
    const { content, tool_calls: calls = [] } = choices[0]?.delta ?? {};
    if (content) {
      message.content += content;
      push(content);
    }
    for (const { index, id, function: part } of calls) {
      const all = (message.tool_calls ??= []);
      all[index] ??= { id, type: "function", function: { name: "", arguments: "" } };
      all[index].function.name += part.name ?? "";
      all[index].function.arguments += part.arguments ?? "";
    }
  }
  signal.throwIfAborted();
  return message;
}

/** Runs a tool; its result as a message. The model learns of errors. @param {import("./language_model.d.ts").LanguageModelTool[]} tools @param {any} call */
async function run(tools, { id, function: { name, arguments: given } }) {
  let content;
  try {
    const tool = tools.find((one) => one.name === name);
    if (!tool) throw new Error(`there is no tool ${name}`);
    content = String(await tool.execute(JSON.parse(given || "{}")));
  } catch (/** @type {any} */ error) {
    content = `Error: ${error?.message ?? error}`;
  }
  return { role: "tool", tool_call_id: id, content };
}

/** A reporter of the part that has arrived, from 0 to 1; equal ones are sent once. @param {EventTarget} target */
function progressTo(target) {
  let sent = -1;
  return (/** @type {number} */ loaded) => {
    if (loaded <= sent) return;
    sent = loaded;
    target.dispatchEvent(new ProgressEvent("downloadprogress", { lengthComputable: true, loaded, total: 1 }));
  };
}

/** Lets `target.onNAME = listener` listen. @param {EventTarget} target @param {string} name */
function on(target, name) {
  /** @type {any} */
  let listener = null;
  target.addEventListener(name, (event) => listener?.call(target, event));
  Object.defineProperty(target, `on${name}`, { get: () => listener, set: (value) => void (listener = value) });
}

/**
 * The result of work, or the signal's reason as soon as it is aborted.
 * @template T @param {Promise<T>} work @param {AbortSignal | undefined} signal @returns {Promise<T>}
 */
function withSignal(work, signal) {
  if (!signal) return work;
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    work
      .then(resolve, (error) => reject(signal.aborted ? signal.reason : error))
      .finally(() => signal.removeEventListener("abort", abort));
  });
}
