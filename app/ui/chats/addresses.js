/**
 * The addresses of chats. A chat with messages has one, so that it can be bookmarked or opened in another tab. Back and
 * Forward go through the chats that this tab has shown. A private chat has no address.
 */
import { t } from "../../language/phrase.js";
import { notify } from "../notices.js";
import { tellNoChats } from "./conversation.js";

const PREFIX = "#chat=";
const LAST = "wisp.chat"; // the chat that any tab showed last

/** The address of a chat, relative to the page's. @param {string} id */
export const addressOf = (id) => PREFIX + id;

/** The chat that the page's address names. @returns {string | null} */
const namedChat = () => (location.hash.startsWith(PREFIX) ? location.hash.slice(PREFIX.length) : null);

/** The chat of the current history entry, which may have no address. @returns {string | undefined} */
const entryChat = () => history.state?.chat;

export class ChatAddresses {
  #chat;
  #steps = 0; // how often the user went back or forward
  #isStepping = false; // while the entry's chat is being read, the shown chat gets no entry
  #restoring = Promise.resolve(); // the list of chats is being read
  #isUnread = false; // no chat could be read: the next visit shows the one that this one has not

  /** @param {import("./chat.js").Chat} chat */
  constructor(chat) {
    this.#chat = chat;
    addEventListener("popstate", () => void this.#follow());
  }

  /** Shows the chat that the address names. Without one, a new chat if the tab had one, else the last chat of any tab. */
  async restore() {
    const named = namedChat();
    const hadNew = !named && entryChat() !== undefined;
    if (hadNew) history.replaceState(null, ""); // its chat had no messages or was private, so it is not stored
    const last = hadNew ? null : localStorage.getItem(LAST) || null;
    try {
      await (this.#restoring = this.#chat.restore(named ?? last));
    } catch (error) {
      this.#isUnread = true;
      tellNoChats(error);
      return this.#chat.parts.changed();
    }
    if (named && named !== this.#chat.conversation.id) tellAbsent();
  }

  /** Gives the shown chat its address, and an entry in the history. */
  show() {
    if (this.#isUnread) return;
    const { id, info, messages } = this.#chat.conversation;
    const hasAddress = messages.length > 0 && !info.private;
    localStorage.setItem(LAST, hasAddress ? id : "");
    if (this.#isStepping) return;
    const hash = hasAddress ? addressOf(id) : "";
    const entry = entryChat();
    if (entry === id && location.hash === hash) return;
    const address = location.pathname + location.search + hash;
    if (entry === undefined || entry === id) history.replaceState({ chat: id }, "", address);
    else history.pushState({ chat: id }, "", address);
  }

  /** Shows the chat of the entry that the user chose with Back or Forward. */
  async #follow() {
    const chat = this.#chat;
    const named = namedChat();
    const id = named ?? entryChat();
    if (id === chat.conversation.id) return;
    const step = ++this.#steps;
    this.#isStepping = true;
    await this.#restoring.catch(() => {}); // a long list takes a moment
    if (step !== this.#steps) return;
    if (chat.all.some((other) => other.id === id)) await chat.open(/** @type {string} */ (id));
    else {
      history.replaceState(null, ""); // the entry's chat is deleted, private or without messages
      chat.startNew();
      if (named) tellAbsent();
    }
    if (step !== this.#steps) return;
    this.#isStepping = false;
    this.show();
  }
}

function tellAbsent() {
  const text = t("This browser has no chat of this address.");
  notify({ key: "address", text, more: t("It was deleted, or it is stored in another browser.") });
}
