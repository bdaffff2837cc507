/** The messages of a chat as a tree: each edit and each regeneration is a branch. One branch is shown. */

/**
 * @typedef {import("./database.js").Message} Message
 * @typedef {import("./database.js").Draft} Draft
 */

const STEP = 2 ** 24; // a message's number is random within such a step

export class Tree {
  /** @type {Map<number, Message>} */
  #messages = new Map();
  /** @type {Map<number | null, Message[]>} the messages that follow one, or begin the chat (null), the oldest first */
  #after = new Map();
  /** @type {number | null} the last message of the shown branch */
  shown = null;
  #highest = -1; // number of a message

  /** @param {Message[]} messages @param {number | null} shown */
  constructor(messages = [], shown = null) {
    for (const message of messages) this.#insert(message);
    this.shown = shown !== null && this.#messages.has(shown) ? shown : (messages.at(-1)?.n ?? null);
  }

  get all() {
    return [...this.#messages.values()];
  }

  /** The messages of the shown branch. @returns {Message[]} */
  path() {
    /** @type {Set<Message>} */
    const path = new Set();
    for (let n = this.shown; n !== null;) {
      const message = this.#messages.get(n);
      if (!message || path.has(message)) break; // a damaged chat: show what can be shown
      path.add(message);
      n = message.parent;
    }
    return [...path].reverse();
  }

  /** Adds a message and shows it. @param {Draft} draft @param {number | null} [parent] default: the last one shown */
  add(draft, parent = this.shown) {
    const message = /** @type {Message} */ (Object.assign(draft, { n: this.#newNumber(), parent }));
    this.#insert(message);
    this.shown = message.n;
    return message;
  }

  /** A number above all others. It is partly random, so that two tabs do not choose the same one. */
  #newNumber() {
    return (Math.floor(this.#highest / STEP) + 1) * STEP + Math.floor(Math.random() * STEP);
  }

  /** The place of a message among its versions. @param {Message} message */
  version(message) {
    const versions = this.#after.get(message.parent) ?? [];
    return { index: versions.indexOf(message), count: versions.length };
  }

  /** Shows another version of a message, with the latest that follows it. @param {Message} message @param {number} step */
  switchVersion(message, step) {
    const other = (this.#after.get(message.parent) ?? [])[this.version(message).index + step];
    if (!other) return;
    let last = other;
    for (let after; (after = this.#after.get(last.n)?.at(-1));) last = after;
    this.shown = last.n;
  }

  /**
   * Takes over messages as another tab stored them: those that are known stay the same objects.
   * @param {Message[]} messages @param {(message: Message) => boolean} isMine such messages stay as they are
   */
  merge(messages, isMine) {
    /** @type {Message[]} */
    const added = [];
    /** @type {Message[]} */
    const changed = [];
    for (const message of messages) {
      const known = this.#messages.get(message.n);
      if (!known) {
        this.#insert(message);
        added.push(message);
      } else if (!isMine(known)) {
        for (const name of Object.keys(known)) delete (/** @type {any} */ (known)[name]);
        changed.push(Object.assign(known, message));
      }
    }
    return { added, changed };
  }

  /** Shows the branch of a message, if it continues the shown one. @param {number | null} n */
  follow(n) {
    if (n === null || !this.#messages.has(n)) return;
    const before = this.shown;
    this.shown = n;
    if (before !== null && !this.path().some((message) => message.n === before)) this.shown = before;
  }

  /** @param {Message} message */
  #insert(message) {
    this.#messages.set(message.n, message);
    const versions = this.#after.get(message.parent);
    if (versions) versions.splice(versions.findLastIndex(({ n }) => n < message.n) + 1, 0, message);
    else this.#after.set(message.parent, [message]);
    this.#highest = Math.max(this.#highest, message.n);
  }
}
