/**
 * The addresses of chats. A chat with messages has one, so that it can be opened in another tab and stored as a bookmark;
 * Back and Forward go through the chats that this tab has shown. A private chat has none.
 */
import { t } from "../../language/phrase.js";
import { notify } from "../notices.js";

const PREFIX = "#chat=";
const LAST = "wisp.chat"; // the chat that any tab showed last

/** The address of a chat, relative to the page's. @param {string} id */
export const addressOf = (id) => PREFIX + id;

/** The chat that the page's address names. @returns {string | null} */
const namedChat = () => (location.hash.startsWith(PREFIX) ? location.hash.slice(PREFIX.length) : null);

/** The chat of the tab's entry in the history, also one without an address. @returns {string | undefined} */
const entryChat = () => history.state?.chat;

export class ChatAddresses {
  #chat;
  #steps = 0; // through the history, so far
  #isStepping = false; // until the chat of the entry is shown, the shown one gets no entry

  /** @param {import("./chat.js").Chat} chat */
  constructor(chat) {
    this.#chat = chat;
    addEventListener("popstate", () => void this.#follow());
  }

  /** Shows the chat that the address names; without one, a new chat that this tab had, or the last chat of any tab. */
  async restore() {
    const named = namedChat();
    const hadNew = !named && entryChat() !== undefined;
    if (hadNew) history.replaceState(null, ""); // it had no messages, and another one replaces it
    const last = hadNew ? null : localStorage.getItem(LAST) || null;
    await this.#chat.restore(named ?? last);
    if (named && named !== this.#chat.conversation.id) tellAbsent();
  }

  /** Gives the shown chat its address, and an entry in the history. */
  show() {
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
    if (chat.all.some((other) => other.id === id)) await chat.open(/** @type {string} */ (id));
    else {
      history.replaceState(null, ""); // of a chat without messages, a private or a deleted one
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
