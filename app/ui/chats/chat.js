/** The shown chat and the list of all: sends messages, receives answers, stores both. */
import { t } from "../../language/phrase.js";
import { explain } from "../advice.js";
import { canContinue } from "../answer/answer_view.js";
import { branchOf } from "../answer/words.js";
import { announce, offerUndo } from "../notices.js";
import { effectiveSettings } from "../settings.js";
import { answerWithTools } from "./agent.js";
import { longer, stream } from "./answer.js";
import { Conversation, remove, saveInfo, tellUnreadable, titleOf } from "./conversation.js";
import * as database from "./database.js";
import { answering, OtherTabs } from "./other_tabs.js";
import { contextOf, usageOf } from "./request.js";
import { emptied } from "./turns.js";
import { usingTools } from "./using_tools.js";
import { listChats, readAtStart, storeAtOnce } from "./visit.js";

/**
 * @typedef {import("./database.js").Message} Message
 * @typedef {import("./database.js").Medium} Medium
 * @typedef {import("./database.js").ChatInfo} ChatInfo
 *
 * @typedef {object} Parts
 * @property {import("../engine.js").Engine} engine
 * @property {import("../thread.js").Thread} thread
 * @property {import("./second_model.js").SecondModel} second
 * @property {import("./request.js").Documents} documents
 * @property {(chosen: import("./database.js").Assistant) => import("./database.js").Assistant} assistant as it is now
 * @property {(chat: ChatInfo) => import("../../tools/registry.js").Offered[]} tools that a chat's answers may use
 * @property {() => void} changed called when the list of chats, the shown chat or its state changed
 * @property {(error: unknown) => void} failed called when a request failed
 */

const SAVED_MS = 1000; // between two writes of a growing answer

export class Chat {
  conversation = Conversation.create();
  /** @type {ChatInfo[]} the newest first */
  all = [];
  /** @type {AbortController | null} of the answer in progress */
  #answering = null;
  #opening = 0; // counts the chats that were opened or begun
  #shown = Promise.resolve(); // once the chat that was chosen last is shown; rejects if it cannot be read
  #paired = false; // two answers are shown side by side
  #others = new OtherTabs(this);

  /** @param {Parts} parts */
  constructor(parts) {
    this.parts = parts;
    parts.thread.edited = () => this.#others.showLate();
    database.tabs.last = () => storeAtOnce(this.conversation);
    addEventListener("pagehide", database.tabs.last);
  }

  /**
   * Waits for the chat that was chosen last. False: another one was chosen meanwhile, or it could not be read.
   * @returns {Promise<boolean>}
   */
  async settled() {
    const chosen = this.#opening;
    const isShown = await this.#shown.then(
      () => true,
      () => false,
    );
    return isShown && chosen === this.#opening;
  }

  get busy() {
    return this.#answering !== null;
  }

  /** The assistant of the shown chat. */
  get assistant() {
    const { assistant } = this.conversation.info;
    return assistant && this.parts.assistant(assistant);
  }

  /** The settings that the shown chat's requests have. */
  get settings() {
    return this.#settingsFor(this.parts.engine.loaded?.name);
  }

  /** @param {string | undefined} model its name */
  #settingsFor(model) {
    return effectiveSettings({ ...this.conversation.info, assistant: this.assistant }, model);
  }

  /**
   * How much of the context the shown chat fills.
   * @returns {Promise<{ used: number, context: number, dropped: number } | null>} null: the context is not known
   */
  async usage() {
    const { loaded } = this.parts.engine;
    const context = loaded && contextOf(loaded);
    if (!loaded || !context) return null;
    const wisp = await this.parts.engine.wisp();
    const parts = { wisp, loaded, context, settings: this.settings, passages: this.parts.documents.asked() };
    return { context, ...(await usageOf(this.conversation.messages, parts)) };
  }

  /** Shows the chat that was open, then the list. @param {string | null} id */
  async restore(id) {
    const mine = ++this.#opening; // a chat that the user begins while this one is read stays
    const { chat, messages, list } = readAtStart(id);
    const restored = chat.then((info) =>
      info && mine === this.#opening ? this.#show(info, messages, mine) : undefined,
    );
    this.#shown = restored.catch(() => {}); // without that chat, the new one is shown
    const all = await list; // fails if nothing can be read
    await restored.catch(tellUnreadable);
    const { info: shown } = this.conversation;
    this.all = [...this.all, ...all.filter((other) => !this.all.some(({ id }) => id === other.id))];
    this.all = this.all.map((other) => (other.id === shown.id ? shown : other));
    this.parts.changed();
  }

  /** Reads the list again, after an import. */
  async reload() {
    const before = this.all;
    const read = await listChats();
    const begun = without(without(this.all, before), read);
    const deleted = without(before, this.all);
    const { info } = this.conversation;
    const found = without(read, deleted);
    this.all = [...begun, ...found.map((other) => (other.id === info.id ? info : other))];
    this.parts.changed();
  }

  /** @param {string} id */
  async open(id) {
    const info = this.all.find((other) => other.id === id);
    if (!info) return;
    if (info === this.conversation.info) return this.#stay();
    const shown = (this.#shown = this.#show(info));
    await shown.catch((error) => {
      if (this.#shown === shown) this.#stay();
      tellUnreadable(error);
    });
  }

  /** Goes on with the shown chat: another one that is being read will not replace it. */
  #stay() {
    this.#opening++;
    this.#shown = Promise.resolve();
  }

  /** @param {ChatInfo} info @param {Promise<Message[]>} [messages] that are being read @param {number} [mine] */
  async #show(info, messages, mine = ++this.#opening) {
    this.stop();
    const conversation = await Conversation.read(info, messages);
    if (mine !== this.#opening) return; // another chat was opened meanwhile
    this.conversation = conversation;
    this.#draw();
  }

  /** @param {boolean} [isPrivate] nothing of the chat is stored */
  startNew(isPrivate = false) {
    this.stop();
    this.#stay();
    this.conversation = Conversation.create(isPrivate);
    this.#draw();
  }

  #draw() {
    this.#paired = false;
    this.#others.show(this.conversation);
    this.parts.changed();
  }

  /**
   * @param {string} text @param {Medium[]} [media]
   * @param {number | null} [parent] the message that it follows; default: the last one shown
   */
  send(text, media = [], parent) {
    const { info, tree, messages, isElsewhere } = this.conversation;
    if (!messages.length) info.title ||= titleOf(text || media[0].name);
    const cut = messages.filter((message) => message.cut && !isElsewhere(message));
    for (const message of cut) delete message.cut; // only the last answer can go on
    const question = tree.add({ role: "user", content: text, ...(media.length && { media }) }, parent);
    this.conversation.begin(question);
    this.conversation.save([...cut, question]);
    if (parent === undefined && !this.#paired) this.parts.thread.add(question);
    else this.#draw();
    if (this.parts.second.loaded) this.#answerTwice(question, this.parts.second);
    else this.#answer(tree.add({ role: "assistant", content: "" }));
  }

  /** Answers a question again: another version of its answer. @param {Message} message the answer */
  regenerate(message) {
    if (this.busy) return;
    const { tree } = this.conversation;
    const again =
      message.content || message.steps?.length
        ? tree.add({ role: "assistant", content: "" }, message.parent)
        : emptied(message);
    tree.shown = again.n;
    this.#paired = false;
    this.#others.show(this.conversation, again);
    this.#answer(again);
  }

  /**
   * Lets an answer go on from one of its words with another one: another version of the answer.
   * @param {Message} message @param {number} word its index @param {number} token the other one's id
   */
  branchAt(message, word, token) {
    if (this.busy || !message.words || !message.trace) return;
    const { content, ...cut } = branchOf(message.words, message.trace, word, token);
    const { tree } = this.conversation;
    const { model, sources, steps } = message;
    const own = steps && [...steps]; // its further calls are not the other version's
    const branch = tree.add({ role: "assistant", content, model, sources, steps: own, cut }, message.parent);
    tree.shown = branch.n;
    this.#paired = false;
    this.#others.show(this.conversation, branch);
    this.#answer(branch);
  }

  /** Lets the last answer go on where it was cut. */
  continue() {
    const message = this.conversation.messages.at(-1);
    if (this.busy || !message || !canContinue(message)) return;
    if (message.finish === "length") message.cut = longer(message.cut);
    delete message.finish;
    delete message.error;
    this.#others.show(this.conversation, message);
    this.#answer(message);
  }

  /** Asks a question in other words: another version of it. @param {Message} message @param {string} text */
  edit(message, text) {
    this.stop();
    this.send(text, message.media, message.parent);
  }

  /** Shows another version of a message. @param {Message} message @param {number} step */
  switchVersion(message, step) {
    this.stop();
    this.conversation.tree.switchVersion(message, step);
    this.conversation.save([]);
    this.#draw();
  }

  stop() {
    this.#answering?.abort();
    this.#answering = null;
  }

  /** Changes a chat's entry in the list. @param {string} id @param {Partial<ChatInfo>} change */
  change(id, change) {
    const info = this.conversation.id === id ? this.conversation.info : this.all.find((other) => other.id === id);
    if (info && Object.entries(change).some(([name, value]) => /** @type {any} */ (info)[name] !== value)) {
      Object.assign(info, change);
      if (this.all.includes(info)) saveInfo(info);
    }
    this.parts.changed();
  }

  /** Deletes a chat; for a few seconds this can be undone. @param {string} id */
  remove(id) {
    const found = this.all.find((other) => other.id === id);
    if (!found) return;
    this.all = this.all.filter((other) => other !== found);
    if (this.conversation.info === found) this.startNew();
    else this.parts.changed();
    const removed = remove(found);
    const undo = async () => {
      this.all = [...this.all, found].sort((a, b) => b.updated - a.updated);
      const bringBack = await removed;
      await bringBack();
      this.parts.changed();
    };
    offerUndo(id, t("Chat deleted."), found.title, undo);
  }

  /** Streams the answer into its message, the last of the shown branch. @param {Message} message */
  async #answer(message) {
    const { thread, engine } = this.parts;
    const controller = this.#begin();
    const view = thread.answer(message);
    thread.toEnd();
    const tools = this.parts.tools(this.conversation.info);
    const { id, messages } = this.conversation;
    await answering(id, this.#stream(message, messages.slice(0, -1), { view, engine, controller, tools }));
    this.#end(controller);
  }

  /**
   * Streams the answers of two models. The chat goes on with the first one's, unless the user picks the other.
   * @param {Message} question @param {import("./second_model.js").SecondModel} second
   */
  async #answerTwice(question, second) {
    const { thread, engine } = this.parts;
    const { conversation } = this;
    const { tree, messages: history } = conversation;
    const engines = [engine, second];
    const controller = this.#begin();
    const answers = engines.map(() => tree.add({ role: "assistant", content: "" }, question.n));
    tree.shown = answers[0].n;
    const names = engines.map(({ loaded }) => loaded?.name ?? "");
    const views = thread.pair(answers, names, (message) => this.#pick(conversation, message));
    this.#paired = true;
    thread.toEnd();
    const both = answers.map((message, i) =>
      this.#stream(message, history, { view: views[i], engine: engines[i], controller }),
    );
    await answering(conversation.id, Promise.all(both));
    this.#end(controller);
  }

  /** Goes on with one of two answers; the other stays as another version. @param {Conversation} conversation @param {Message} message */
  #pick(conversation, message) {
    if (this.conversation !== conversation) return;
    this.stop();
    message.finish ??= "stopped";
    conversation.tree.shown = message.n;
    conversation.save([message]);
    this.#draw();
  }

  #begin() {
    const controller = new AbortController();
    this.#answering = controller;
    return controller;
  }

  /** @param {AbortController} controller of answers that ended */
  #end(controller) {
    if (this.#answering === controller) this.#answering = null;
    this.#others.showLate();
    this.parts.changed();
  }

  /**
   * @param {Message} message @param {Message[]} history the messages before it
   * @param {{ view: import("../answer/answer_view.js").AnswerView, engine: import("./answer.js").Answering, controller: AbortController,
   *   tools?: ReturnType<Parts["tools"]> }} how
   */
  async #stream(message, history, { view, engine, controller, tools = [] }) {
    const { conversation } = this;
    const { thread, documents } = this.parts;
    conversation.begin(message);
    this.#touch(conversation, [message], true);
    this.parts.changed();
    let saved = performance.now();
    try {
      const asked = {
        engine,
        documents,
        settings: this.#settingsFor(engine.loaded?.name),
        isPrivate: conversation.info.private ?? false,
        signal: controller.signal,
        begins: () => thread.markDropped(history, message.dropped),
        grows: () => {
          view.grow(message);
          if (performance.now() - saved < SAVED_MS) return;
          saved = performance.now();
          conversation.save([message], true);
        },
      };
      if (!tools.length && !message.steps) await stream(message, history, asked);
      else
        await answerWithTools(message, history, asked, usingTools(message, { conversation, view, controller, tools }));
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
    view.finish(message, () => {
      if (this.conversation !== conversation) return;
      announce(message.error ? t("The answer failed.") : t("Answer: {text}", { text: view.spoken }));
    });
    this.#touch(conversation, [message]);
    for (const made of [message, ...history.slice(-1)]) conversation.end(made);
  }

  /**
   * Stores what changed, and moves the chat to the top of the list.
   * @param {Conversation} conversation @param {Message[]} messages @param {boolean} [growing]
   */
  #touch(conversation, messages, growing = false) {
    const { info } = conversation;
    if (conversation !== this.conversation && !this.all.includes(info)) return; // deleted meanwhile
    info.updated = Math.max(Date.now(), info.updated + 1); // what is left of it is newer, also if a clock goes back
    conversation.save(messages, growing);
    if (!info.private) this.all = [info, ...this.all.filter((other) => other !== info)];
  }
}

/** The chats whose ids others do not have: each read makes objects of its own. @param {ChatInfo[]} chats @param {ChatInfo[]} others */
const without = (chats, others) => chats.filter(({ id }) => !others.some((other) => other.id === id));
