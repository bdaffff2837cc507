/**
 * The messages far from view in a long chat: each is an item with its plain text, which costs little, until one scrolls
 * near. The plain text is there for the browser's search and for screen readers. What is in view does not move when the
 * items above it change their height.
 */
import { h } from "./dom.js";

/** @typedef {import("./chats/database.js").Message} Message */

const NEAR = 1500; // px above and below the view
const ANCHORS = CSS.supports("overflow-anchor", "auto"); // whether the browser keeps what is in view in place
const LINE = 26; // px
const CHARACTERS = 90; // of a line
const FRAME = 64; // px of a message around its text

export class LaterMessages {
  /** @type {Map<Element, Message>} */
  #waiting = new Map();
  #scroller;
  #draw;
  #observer;

  /** @param {HTMLElement} scroller @param {(message: Message) => HTMLElement} draw makes a message's item */
  constructor(scroller, draw) {
    this.#scroller = scroller;
    this.#draw = draw;
    this.#observer = new IntersectionObserver((entries) => this.#look(entries), {
      root: scroller,
      rootMargin: `${NEAR}px 0px`,
    });
  }

  /** Forgets the messages of another chat. */
  clear() {
    this.#observer.disconnect();
    this.#waiting.clear();
  }

  /** A message's item until one scrolls near. @param {Message} message */
  item(message) {
    const { role, content } = message;
    const item = h("li", { class: `message ${role} later` }, h("div", { dir: "auto" }, content));
    const lines = content.split("\n").reduce((sum, line) => sum + Math.ceil((line.length + 1) / CHARACTERS), 0);
    item.style.containIntrinsicBlockSize = `auto ${FRAME + LINE * lines}px`;
    this.#waiting.set(item, message);
    this.#observer.observe(item);
    return item;
  }

  /** @param {IntersectionObserverEntry[]} entries */
  #look(entries) {
    const near = entries.filter(({ isIntersecting, target }) => isIntersecting && this.#waiting.has(target));
    if (!near.length) return;
    const { top } = this.#scroller.getBoundingClientRect();
    const items = [.../** @type {HTMLElement} */ (near[0].target.parentElement).children];
    const inView = items.findIndex((item) => item.getBoundingClientRect().bottom > top);
    const before = items[inView]?.getBoundingClientRect().top ?? 0;
    for (const { target } of near) {
      const drawn = this.#draw(/** @type {Message} */ (this.#waiting.get(target)));
      this.#waiting.delete(target);
      this.#observer.unobserve(target);
      target.replaceWith(drawn);
      items[items.indexOf(target)] = drawn;
    }
    const moved = (items[inView]?.getBoundingClientRect().top ?? 0) - before;
    if (moved && !ANCHORS) this.#scroller.scrollTop += moved;
  }
}
