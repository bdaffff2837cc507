/**
 * A list that grows with the user's data, such as the stored models. Only rows near the view have elements (row_window.js).
 * Rows have keys: one whose state is as before keeps its element, and the focus stays where it is.
 */
import { RowWindow } from "./row_window.js";

const HEIGHT = 60; // px of a row until it is drawn
const FOCUSABLE = "button, input, summary, a[href]";

/**
 * @typedef {object} Item
 * @property {string} key
 * @property {unknown} [state] the row is drawn again when it changes
 * @property {() => HTMLElement} draw makes its element, a list item
 */

export class LongList {
  #list;
  #window;
  /** @type {Map<string, { row: import("./row_window.js").Row, state: string }>} */
  #shown = new Map();

  /** @param {HTMLElement} list @param {Element | null} [scroller] default: the sheet that it is in */
  constructor(list, scroller = list.closest(".sheet-body")) {
    this.#list = list;
    this.#window = new RowWindow(/** @type {HTMLElement} */ (scroller), list);
  }

  /** @param {Item[]} items */
  show(items) {
    const restore = this.#keepFocus();
    const before = this.#shown;
    this.#shown = new Map(items.map((item) => [item.key, this.#entry(item, before.get(item.key))]));
    this.#window.change([...this.#shown.values()].map(({ row }) => row));
    restore();
  }

  /** @param {Item} item @param {{ row: import("./row_window.js").Row, state: string }} [before] */
  #entry({ state: now, draw }, before) {
    const state = JSON.stringify(now) ?? "";
    if (!before) return { row: { draw, height: HEIGHT }, state };
    before.row.draw = draw;
    if (before.state !== state) this.#window.redraw(before.row);
    return { row: before.row, state };
  }

  /** Returns what gives the focus back to the same control of the same row; if it was removed, of the row in its place. */
  #keepFocus() {
    const focused = /** @type {HTMLElement} */ (document.activeElement);
    const rows = [...this.#shown.values()].map(({ row }) => row);
    const index = rows.findIndex(({ element }) => element?.contains(focused));
    if (index < 0) return () => {};
    const control = controlsOf(rows[index].element).indexOf(focused);
    return () => {
      if (document.activeElement === focused) return;
      if (focused.isConnected) return focused.focus({ preventScroll: true });
      const now = [...this.#shown.values()].map(({ row }) => row);
      const row = now.includes(rows[index]) ? rows[index] : now[Math.min(index, now.length - 1)];
      const controls = controlsOf(row?.element);
      controls[Math.min(control, controls.length - 1)]?.focus({ preventScroll: true });
    };
  }
}

/** @param {Element} [element] @returns {HTMLElement[]} */
const controlsOf = (element) =>
  [...(element?.querySelectorAll(FOCUSABLE) ?? [])].map((one) => /** @type {any} */ (one));
