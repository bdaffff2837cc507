/** The current conversation: sends messages, receives answers, stores both. */
import { explain } from "./advice.js";
import { withCalls } from "./answer/tool_calls.js";
import { branchOf, withWords, wordFields } from "./answer/words.js";
import { announce, dismiss, notify } from "./notices.js";
import { readSettings, samplingFields } from "./settings.js";
import * as store from "./store.js";
import { canContinue } from "./thread.js";

/**
 * @typedef {import("./store.js").Message} Message
 * @typedef {import("./store.js").Conversation} Conversation
 *
 * @typedef {object} Parts
 * @property {import("./engine.js").Engine} engine
 * @property {import("./thread.js").Thread} thread
 * @property {ReturnType<typeof import("./documents.js").startDocuments>} documents
 * @property {() => void} changed called when the list of chats, the shown chat or its state changed
 * @property {(error: unknown) => void} failed called when a request failed
 */

export class Chat {
  conversation = store.newConversation();
  /** @type {Conversation[]} the newest first */
  all = [];
  /** @type {AbortController | null} of the answer in progress */
  #answering = null;

  /** @param {Parts} parts */
  constructor(parts) {
    this.parts = parts;
    addEventListener("pagehide", () => this.busy && store.saveAtOnce(this.conversation));
  }

  get busy() {
    return this.#answering !== null;
  }

  /** Reads the stored chats and shows the one that was open. @param {string | null} id */
  async restore(id) {
    this.all = await store.allConversations();
    for (const { messages } of this.all) {
      for (const message of messages) if (message.role === "assistant") message.finish ??= "stopped"; // the tab was closed meanwhile
    }
    const found = this.all.find((conversation) => conversation.id === id);
    if (found) this.open(found.id);
    else this.parts.changed();
  }

  /** @param {string} id */
  open(id) {
    const found = this.all.find((conversation) => conversation.id === id);
    if (!found) return;
    this.stop();
    this.conversation = found;
    this.parts.thread.show(found.messages);
    this.parts.changed();
  }

  startNew() {
    this.stop();
    this.conversation = store.newConversation();
    this.parts.thread.show([]);
    this.parts.changed();
  }

  /** @param {string} text */
  send(text) {
    const { messages } = this.conversation;
    if (!messages.length) this.conversation.title = store.titleOf(text);
    for (const message of messages) delete message.cut; // only the last answer can go on
    messages.push({ role: "user", content: text });
    this.parts.thread.add(messages[messages.length - 1]);
    this.#answer();
  }

  /** Answers the last question again. */
  regenerate() {
    const { messages } = this.conversation;
    if (this.busy || messages.at(-1)?.role !== "assistant") return;
    messages.pop();
    this.parts.thread.show(messages);
    this.#answer();
  }

  /** Lets the last answer go on where it was cut. */
  continue() {
    const { messages } = this.conversation;
    const message = messages.at(-1);
    if (this.busy || !message || !canContinue(message)) return;
    const { role, content, reasoning, model, sources, cut, finish } = message;
    messages.pop();
    this.parts.thread.show(messages);
    this.#answer({ role, content, reasoning, model, sources, cut: finish === "length" ? longer(cut) : cut });
  }

  /** Asks the last question again in other words. @param {string} text */
  edit(text) {
    this.stop();
    const { messages } = this.conversation;
    const last = messages.findLastIndex(({ role }) => role === "user");
    messages.splice(last);
    this.parts.thread.show(messages);
    this.send(text);
  }

  /**
   * Lets an answer go on from one of its words with another one, in place of the rest of the chat; this can be undone.
   * @param {Message} message @param {number} word its index @param {number} token the other one's id
   */
  branchAt(message, word, token) {
    const { conversation } = this;
    const before = [...conversation.messages];
    if (this.busy || !before.includes(message) || !message.words || !message.trace) return;
    const { content, ...cut } = branchOf(message.words, message.trace, word, token);
    conversation.messages.splice(before.indexOf(message));
    this.parts.thread.show(conversation.messages);
    const undo = () => {
      if (this.conversation === conversation) this.stop();
      conversation.messages = before;
      this.#touch(conversation);
      if (this.conversation === conversation) this.open(conversation.id);
    };
    notify({ key: "branched", text: "The answer goes on from another word.", actions: [{ label: "Undo", run: undo }] });
    this.#answer({ role: "assistant", content, model: message.model, sources: message.sources, cut });
  }

  stop() {
    this.#answering?.abort();
    this.#answering = null;
  }

  /** @param {string} id @param {string} title */
  rename(id, title) {
    const found = this.all.find((conversation) => conversation.id === id);
    if (found && found.title !== title) {
      found.title = title;
      this.#store(found);
    }
    this.parts.changed();
  }

  /** Deletes a chat; for a few seconds this can be undone. @param {string} id */
  remove(id) {
    const found = this.all.find((conversation) => conversation.id === id);
    if (!found) return;
    this.all = this.all.filter((conversation) => conversation !== found);
    this.#writing = this.#writing.then(() => store.deleteConversation(id)).catch(storageFailed);
    if (this.conversation === found) this.startNew();
    else this.parts.changed();
    const undo = () => {
      this.all = [...this.all, found].sort((a, b) => b.updated - a.updated);
      this.#store(found);
      this.parts.changed();
    };
    notify({ key: "deleted", text: "Chat deleted.", actions: [{ label: "Undo", run: undo }], seconds: 8 });
  }

  /** Adds an answer, which may have begun, to the conversation and streams into it. @param {Message} [message] */
  async #answer(message = { role: "assistant", content: "" }) {
    const { conversation } = this;
    const { thread, engine } = this.parts;
    const history = answered(conversation.messages);
    const { cut } = message;
    conversation.messages.push(message);
    const view = /** @type {import("./thread.js").AnswerView} */ (thread.add(message));
    thread.toEnd();
    this.#touch(conversation);

    const controller = new AbortController();
    this.#answering = controller;
    this.parts.changed();
    try {
      const stopped = new Promise((_, reject) => controller.signal.addEventListener("abort", () => reject(null)));
      const wisp = await Promise.race([engine.ready(), stopped]);
      const { name, choice, stats } = /** @type {import("./engine.js").Loaded} */ (engine.loaded);
      message.model = name;
      message.upstream = choice.upstream;
      const asked = performance.now();
      const resumed = cut && !choice.upstream && cut.request.model === stats.model ? cut : null;
      const asking = resumed?.request ?? (await Promise.race([this.#request(message, history), stopped]));
      const { signal } = controller;
      const stream = await wisp.chat.completions.create(asking, { signal, resume: resumed?.journal });
      if (resumed) Object.assign(message, { content: "", reasoning: undefined }); // the stream begins with them
      if (stream.journal) message.cut = { request: asking, journal: stream.journal };
      else delete message.cut;
      if (stream.journal && asking.logprobs) message.trace = { request: asking, journal: stream.journal };
      let saved = performance.now();
      for await (const chunk of stream) {
        read(chunk, message, asked);
        view.grow(message);
        if (performance.now() - saved < 1000) continue;
        saved = performance.now();
        this.#store(conversation);
      }
      message.finish ??= "stop";
    } catch (error) {
      if (!controller.signal.aborted) {
        engine.forgetAfter(error);
        message.error = explain(error);
        this.parts.failed(error);
      }
    }
    if (controller.signal.aborted) message.finish = "stopped";
    if (message.error) message.finish = "error";
    if (message.finish === "stop") delete message.cut;
    view.finish(message);
    this.#touch(conversation);
    if (this.#answering === controller) this.#answering = null;
    this.parts.changed();
    if (this.conversation === conversation) announce(message.error ? "The answer failed." : `Answer: ${view.spoken}`);
  }

  /**
   * The request for an answer, which may have begun.
   * @param {Message} message gets the sources @param {Message[]} history the messages before it
   * @returns {Promise<Record<string, any> & { stream: true }>}
   */
  async #request(message, history) {
    const { choice, stats } = /** @type {import("./engine.js").Loaded} */ (this.parts.engine.loaded);
    const begun = message.content;
    const messages = /** @type {any[]} */ (messagesOf(history));
    const found = await this.#search(messages);
    if (found) {
      message.sources = found.sources;
      messages[messages.length - 1].content = found.content;
    }
    if (begun) messages.push({ role: "assistant", content: begun });
    return { ...request(messages, choice, stats.model), ...(begun ? { continue_final_message: true } : {}) };
  }

  /** The last question with passages that may answer it, if questions go to the documents. @param {Messages} messages */
  async #search(messages) {
    return this.parts.documents.ask(messages[messages.length - 1].content, messages.slice(0, -1));
  }

  /** @param {Conversation} conversation has changed: moves to the top of the list */
  #touch(conversation) {
    if (conversation !== this.conversation && !this.all.includes(conversation)) return; // deleted meanwhile
    conversation.updated = Date.now();
    this.all = [conversation, ...this.all.filter((other) => other !== conversation)];
    this.#store(conversation);
  }

  /** @type {Promise<unknown>} pending writes, in order */
  #writing = Promise.resolve();

  /** @param {Conversation} conversation */
  #store(conversation) {
    const copy = structuredClone(conversation);
    this.#writing = this.#writing
      .then(() => store.saveConversation(copy))
      .then(() => dismiss("storage"), storageFailed);
  }
}

/** @param {unknown} error */
function storageFailed(error) {
  notify({ key: "storage", text: "This browser could not store the chat.", more: `${error}`, kind: "error" });
}

/** The same answer with as many tokens more as it was cut at. @param {import("./store.js").Cut | undefined} cut */
function longer(cut) {
  if (!cut) return undefined;
  const { request, journal } = cut;
  const choices = journal.choices.map((choice) => choice && { ...choice, closed: false });
  const had = choices[0]?.batches.flat().length ?? 0;
  const limit = request.max_tokens && had + request.max_tokens;
  return { request: { ...request, max_tokens: limit }, journal: { ...journal, choices, over: false } };
}

/**
 * The messages for the model, without questions that were never answered, so that roles alternate.
 * @param {Message[]} messages
 */
function answered(messages) {
  return messages.filter(({ role, content }, index) => {
    const next = messages[index + 1];
    return content && !(role === "user" && next && !next.content);
  });
}

/** @typedef {{ role: string, content: string }[]} Messages in the shape of a request */

/** @param {Message[]} history @returns {Messages} */
function messagesOf(history) {
  const system = readSettings().system.trim();
  const turns = history.map(({ role, content }) => ({ role, content }));
  return system ? [{ role: "system", content: system }, ...turns] : turns;
}

/**
 * @param {Messages} messages @param {import("./engine.js").Choice} choice the model that answers
 * @param {string} [loaded] id of the loaded model
 * @returns {Record<string, any> & { stream: true }}
 */
function request(messages, { model, upstream }, loaded) {
  const settings = readSettings();
  return {
    model: upstream ? model : loaded, // other tabs may have changed the default model
    ...samplingFields(settings, upstream !== undefined),
    ...(upstream ? {} : wordFields()),
    messages,
    stream: true,
    stream_options: { include_usage: true },
  };
}

/** Applies one chat.completion.chunk to a message. @param {any} chunk @param {Message} message @param {number} asked ms */
function read(chunk, message, asked) {
  const now = performance.now();
  const choice = chunk.choices?.[0];
  const { content, reasoning_content: thought, tool_calls: calls } = choice?.delta ?? {};
  const answers = content && !message.content;
  if (choice?.logprobs?.content) message.words = withWords(message.words, choice.logprobs.content);
  if (calls) message.toolCalls = withCalls(message.toolCalls, calls);
  if (thought) message.reasoning = (message.reasoning ?? "") + thought;
  if (content) message.content += content;
  if (content || thought) {
    message.stats ??= { tokens: 0, perSecond: 0, firstMs: now - asked };
    message.stats.tokens += 1;
    const elapsed = now - asked - message.stats.firstMs;
    if (thought || (answers && message.reasoning)) message.thoughtMs = Math.max(message.thoughtMs ?? 0, elapsed);
    message.stats.perSecond = elapsed > 0 ? ((message.stats.tokens - 1) * 1000) / elapsed : 0;
  }
  if (choice?.finish_reason) message.finish = choice.finish_reason === "length" ? "length" : "stop";
  if (message.stats && chunk.usage) {
    message.stats.tokens = chunk.usage.completion_tokens;
    message.stats.prompt = chunk.usage.prompt_tokens;
    message.stats.cached = chunk.usage.prompt_tokens_details?.cached_tokens;
  }
  if (message.stats && chunk.timings?.predicted_per_second) {
    message.stats.perSecond = chunk.timings.predicted_per_second;
    message.stats.firstMs = chunk.timings.ttft_ms ?? message.stats.firstMs;
  }
}
