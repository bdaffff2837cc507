/** A list that draws only the rows in view: buttons of one height, in a container that scrolls. */
import { h } from "./dom.js";
import { keyOf } from "./shortcuts.js";

const BEYOND = 4; // rows drawn above and below the view

/** @template T */
export class VirtualRows {
  #container;
  #rowHeight;
  #render;
  #onEnd;
  #space = h("div", { class: "rows-space", role: "list" });
  /** @type {Map<number, HTMLElement>} index -> row */
  #drawn = new Map();
  /** @type {T[]} */
  #items = [];

  /**
   * @param {HTMLElement} container with a height of its own
   * @param {{ rowHeight: number, render: (item: T) => HTMLElement, onEnd?: () => void }} options `rowHeight` in pixels;
   *   `render` makes an item's button; `onEnd` is called when the last row is near
   */
  constructor(container, { rowHeight, render, onEnd = () => {} }) {
    this.#container = container;
    this.#rowHeight = rowHeight;
    this.#render = render;
    this.#onEnd = onEnd;
    container.append(this.#space);
    container.addEventListener("scroll", () => this.#draw(), { passive: true });
    container.addEventListener("keydown", (event) => this.#move(event));
    new ResizeObserver(() => this.#draw()).observe(container);
  }

  /** Shows other items, from the first one. @param {T[]} items */
  show(items) {
    this.#items = items;
    this.#container.scrollTop = 0;
    this.#clear();
    this.#draw();
  }

  /** Shows more items after the others. @param {T[]} items */
  add(items) {
    this.#items = [...this.#items, ...items];
    this.#clear();
    this.#draw();
  }

  get length() {
    return this.#items.length;
  }

  #clear() {
    const focused = this.#focused();
    this.#space.replaceChildren();
    this.#drawn.clear();
    this.#space.style.height = `${this.#items.length * this.#rowHeight}px`;
    if (focused !== undefined && focused < this.#items.length) this.#focus(focused);
  }

  #draw() {
    const { scrollTop, clientHeight } = this.#container;
    const first = Math.max(0, Math.floor(scrollTop / this.#rowHeight) - BEYOND);
    const last = Math.min(this.#items.length, Math.ceil((scrollTop + clientHeight) / this.#rowHeight) + BEYOND);
    for (const [index, row] of this.#drawn)
      if ((index < first || index >= last) && !row.contains(document.activeElement)) {
        row.remove();
        this.#drawn.delete(index);
      }
    for (let index = first; index < last; index++) if (!this.#drawn.has(index)) this.#add(index);
    if (this.#items.length && last >= this.#items.length) this.#onEnd();
  }

  /** @param {number} index */
  #add(index) {
    const place = { role: "listitem", "aria-posinset": index + 1, "aria-setsize": this.#items.length };
    const row = h("div", { class: "row-of-list", ...place }, this.#render(this.#items[index]));
    row.style.transform = `translateY(${index * this.#rowHeight}px)`;
    row.style.height = `${this.#rowHeight}px`;
    this.#drawn.set(index, row);
    const after = [...this.#drawn.keys()].filter((other) => other > index).sort((a, b) => a - b)[0];
    this.#space.insertBefore(row, this.#drawn.get(after) ?? null); // Tab follows the order of the document
  }

  /** The index of the row that has the focus. */
  #focused() {
    const row = this.#space.contains(document.activeElement) && document.activeElement?.closest(".row-of-list");
    return row ? Number(row.getAttribute("aria-posinset")) - 1 : undefined;
  }

  /** @param {number} index */
  #focus(index) {
    const top = index * this.#rowHeight;
    const { scrollTop, clientHeight } = this.#container;
    if (top < scrollTop) this.#container.scrollTop = top;
    if (top + this.#rowHeight > scrollTop + clientHeight)
      this.#container.scrollTop = top + this.#rowHeight - clientHeight;
    this.#draw();
    this.#drawn.get(index)?.querySelector("button")?.focus({ preventScroll: true });
  }

  /** @param {KeyboardEvent} event */
  #move(event) {
    const step = [1, -1][keyOf("step", event)] ?? [-Infinity, Infinity][keyOf("ends", event)];
    const at = this.#focused();
    if (step === undefined || at === undefined) return;
    event.preventDefault();
    this.#focus(Math.max(0, Math.min(this.#items.length - 1, at + step)));
  }
}
