/** A list with elements for the rows in view only, so that it may have ten thousands of rows. */
import { rowAt } from "./row_at.js";

const BEYOND = 300; // px above and below the view that have elements, too, so that Tab and scrolling find them

/**
 * @typedef {object} Row
 * @property {string} key
 * @property {number} height px
 * @property {unknown} state the row is drawn again when it changes
 * @property {() => HTMLElement} draw makes its element, a list item
 */

export class VirtualList {
  /** @type {Row[]} */
  #rows = [];
  /** @type {number[]} the top of each row, and the end of the last */
  #tops = [0];
  /** @type {Map<string, { element: HTMLElement, state: string }>} */
  #drawn = new Map();

  /** @param {HTMLElement} scroller @param {HTMLElement} list in it */
  constructor(scroller, list) {
    this.scroller = scroller;
    this.list = list;
    list.classList.add("virtual");
    scroller.addEventListener("scroll", () => this.#draw(), { passive: true });
    new ResizeObserver(() => this.#draw()).observe(scroller);
  }

  /** @param {Row[]} rows */
  show(rows) {
    this.#rows = rows;
    this.#tops = [0];
    for (const { height } of rows) this.#tops.push(this.#tops[this.#tops.length - 1] + height);
    this.list.style.height = `${this.#tops[rows.length]}px`;
    this.#draw();
  }

  #draw() {
    const { scrollTop, clientHeight } = this.scroller;
    const first = rowAt(this.#tops, scrollTop - BEYOND);
    const last = rowAt(this.#tops, scrollTop + clientHeight + BEYOND);
    /** @type {Map<string, { element: HTMLElement, state: string }>} */
    const drawn = new Map();
    for (let index = 0; index < this.#rows.length; index++) {
      if (index < first) index = first;
      if (index > last) break;
      const row = this.#rows[index];
      const state = JSON.stringify(row.state);
      const before = this.#drawn.get(row.key);
      const element = before?.state === state ? before.element : row.draw();
      element.style.top = `${this.#tops[index]}px`;
      element.style.height = `${row.height}px`;
      element.ariaPosInSet = String(index + 1);
      element.ariaSetSize = String(this.#rows.length);
      drawn.set(row.key, { element, state });
    }
    const elements = new Set([...drawn.values()].map(({ element }) => element));
    for (const { element } of this.#drawn.values()) if (!elements.has(element)) element.remove();
    this.#drawn = drawn;
    /** @type {Element | null} */
    let next = this.list.firstElementChild;
    for (const element of elements) {
      if (element === next) next = element.nextElementSibling;
      else this.list.insertBefore(element, next);
    }
  }
}
