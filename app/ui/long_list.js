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
  #scroller;
  #window;
  /** @type {Map<string, { row: import("./row_window.js").Row, state: string }>} */
  #shown = new Map();

  /** @param {HTMLElement} list @param {Element | null} [scroller] default: the sheet that it is in */
  constructor(list, scroller = list.closest(".sheet-body")) {
    this.#scroller = /** @type {HTMLElement} */ (scroller);
    this.#window = new RowWindow(this.#scroller, list);
  }

  /** @param {Item[]} items */
  show(items) {
    const restore = this.#keepFocus();
    const before = this.#shown;
    this.#shown = new Map(items.map((item) => [item.key, this.#entry(item, before.get(item.key))]));
    this.#window.update([...this.#shown.values()].map(({ row }) => row));
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

  /**
   * Returns what gives the focus back to the same control of the same row. If the row was removed, the row in its place
   * gets it, and none of its controls: the same key once more would remove that row, too.
   */
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
      const stays = now.includes(rows[index]);
      const row = stays ? rows[index] : now[Math.min(index, now.length - 1)];
      const controls = stays && control >= 0 ? controlsOf(row.element) : [];
      const same = controls[Math.min(control, controls.length - 1)];
      if (same) same.focus({ preventScroll: true });
      else focusPlace(row?.element ?? this.#scroller);
    };
  }
}

/** Focuses what Tab does not stop at. @param {HTMLElement} element */
function focusPlace(element) {
  if (!element.hasAttribute("tabindex")) element.tabIndex = -1;
  element.focus({ preventScroll: true });
}

/** @param {Element} [element] @returns {HTMLElement[]} */
const controlsOf = (element) =>
  [...(element?.querySelectorAll(FOCUSABLE) ?? [])].map((one) => /** @type {any} */ (one));
