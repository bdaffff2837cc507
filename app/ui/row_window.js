/**
 * A list whose rows have heights that are known only once they are drawn, such as a chat of thousands of messages. Only
 * rows near the view have elements in the document. A gap as high as the other rows stands in their place. What is in
 * view does not move when rows above it turn out to be higher or lower than was estimated, or grow later: the row window
 * sees to that, for Safari has no overflow-anchor, and Chromium's loses the place when a gap becomes rows.
 *
 * Some rows stay in the document wherever the view is: what has the focus, what is selected, a frame, a sound that plays.
 * A row that the reader may have changed (an opened part, a text that is edited) keeps its element outside the document.
 */
import { h } from "./dom.js";
import { rowAt } from "./row_at.js";
import { translate } from "./texts.js";

/**
 * @typedef {object} Row
 * @property {(() => HTMLElement) | null} draw makes its element, a list item; null: it has one, which cannot be made again
 * @property {number} height px; an estimate until the row is drawn
 * @property {HTMLElement} [element]
 * @property {boolean} [changed] by the reader, perhaps
 */

const NEAR = 1500; // px above and below the view that are drawn, so that Tab, scrolling and screen readers find them
const FAR = 3000; // px above and below the view that stay drawn
const BUDGET_MS = 6; // of a frame, for rows that are not in view yet
const PASSES = 5; // at most, until rows of unknown heights fill the view
const STAYS = ":focus, iframe, :fullscreen"; // a frame would start again
const CHANGES = "button:not([data-changes='nothing']), summary"; // what a click may change a row by

export class RowWindow {
  /** @type {Row[]} */
  #rows = [];
  /** @type {Map<Row, number>} */
  #numbers = new Map();
  /** @type {number[]} the top of each row, and the end of the last with its gap */
  #tops = [0];
  /** @type {Set<Row>} in the document */
  #drawn = new Set();
  /** @type {WeakMap<Element, [number, number]>} the first row that a gap stands for, and the one after it */
  #gaps = new WeakMap();
  #isStale = false; // rows or their heights changed since #tops
  #isMoved = false; // rows changed since the last draw
  #isPrinting = false; // all rows are drawn
  #between = 0; // px between two rows
  #frame = 0;
  #scroller;
  #list;
  #placed;
  #sizes = new ResizeObserver((entries) => this.#measured(entries));
  #inView; // tells of gaps that come into view without a scroll, when something above them shrinks

  /** @param {HTMLElement} scroller @param {HTMLElement} list in it, or itself @param {() => void} [placed] is called after rows were drawn */
  constructor(scroller, list, placed = () => {}) {
    this.#scroller = scroller;
    this.#list = list;
    this.#placed = placed;
    scroller.style.overflowAnchor = "none";
    scroller.addEventListener("scroll", () => this.#draw(), { passive: true });
    new ResizeObserver(() => this.#drawSoon()).observe(scroller);
    for (const event of ["click", "input"])
      list.addEventListener(event, (event) => this.#noteChange(event), { capture: true });
    const seen = (/** @type {IntersectionObserverEntry[]} */ gaps) =>
      gaps.some(({ isIntersecting }) => isIntersecting) && this.#drawSoon();
    this.#inView = new IntersectionObserver(seen, { root: scroller });
  }

  /** Shows the rows of another list. @param {Row[]} rows */
  reset(rows) {
    this.#sizes.disconnect();
    this.#drawn.clear();
    this.#rows = rows;
    this.#isStale = true;
    this.#layOut();
    this.#list.replaceChildren(...(rows.length ? [this.#gap(0, rows.length)] : []));
    this.#placed(); // it may scroll to the end
    this.#rowsChanged();
  }

  /** Changes which rows the list has. Those that stay keep their elements. @param {Row[]} rows */
  update(rows) {
    const stay = new Set(rows);
    for (const row of this.#drawn) if (!stay.has(row)) this.#hide(row);
    this.#rows = rows;
    this.#rowsChanged();
  }

  /** Makes a row's element again. @param {Row} row */
  redraw(row) {
    const { element } = row;
    row.changed = false;
    delete row.element;
    if (!element || !this.#drawn.has(row)) return;
    this.#sizes.unobserve(element);
    this.#attach(row);
    element.replaceWith(/** @type {HTMLElement} */ (/** @type {Row} */ (row).element));
  }

  /** @param {Row} row @param {number} [index] default: after the others */
  add(row, index = this.#rows.length) {
    this.#rows.splice(index, 0, row);
    this.#rowsChanged();
  }

  /** @param {Row} row */
  remove(row) {
    const index = this.#rows.indexOf(row);
    if (index < 0) return;
    this.#rows.splice(index, 1);
    this.#hide(row);
    this.#rowsChanged();
  }

  /** Scrolls to a row and returns its element. @param {Row} row */
  reveal(row) {
    this.#layOut();
    this.#scroller.scrollTop += this.#tops[this.#numbers.get(row) ?? 0] - this.#view().top;
    this.#draw();
    row.element?.scrollIntoView({ block: "center", behavior: "instant" });
    return row.element;
  }

  /** The first row in view, and its place in the window, in px. */
  place() {
    const row = this.#rowOf(this.#firstInView());
    return row?.element && { row, top: row.element.getBoundingClientRect().top };
  }

  /** Scrolls so that a row is at a place in the window. @param {Row} row @param {number} top px */
  moveTo(row, top) {
    this.#layOut();
    const list = this.#list.getBoundingClientRect().top;
    this.#scroller.scrollTop += list + this.#tops[this.#numbers.get(row) ?? 0] - top;
    this.#draw();
    if (row.element?.isConnected) this.#scroller.scrollTop += row.element.getBoundingClientRect().top - top;
  }

  /** The rows that a range covers, if some of them are not drawn; else none: the range has all. @param {Range} range */
  covered(range) {
    const items = [...this.#list.children].filter((item) => range.intersectsNode(item));
    if (!items.some((item) => this.#gaps.has(item))) return [];
    return items.flatMap((item) => {
      const gap = this.#gaps.get(item);
      return gap ? this.#rows.slice(...gap) : [this.#rowOf(item)];
    });
  }

  #rowsChanged() {
    this.#isStale = this.#isMoved = true;
    this.#draw();
  }

  /** Draws all rows, to be printed, or only those near the view again. @param {boolean} isPrinting */
  setPrinting(isPrinting) {
    this.#isPrinting = isPrinting;
    this.#draw();
  }

  #drawSoon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw() {
    const until = performance.now() + BUDGET_MS;
    for (let pass = 0; pass < PASSES && this.#place(until); pass++) this.#placed();
  }

  /** Puts the rows near the view into the document. False: they are. @param {number} until the time that rows out of view may take */
  #place(until) {
    this.#layOut();
    const wanted = this.#wanted(until);
    if (!this.#isMoved && wanted.size === this.#drawn.size && [...wanted].every((row) => this.#drawn.has(row)))
      return false;
    this.#isMoved = false;
    const anchor = this.#firstInView();
    const before = anchor?.getBoundingClientRect().top ?? 0;
    for (const row of this.#drawn) if (!wanted.has(row)) this.#hide(row);
    const fresh = [...wanted].filter((row) => !this.#drawn.has(row));
    for (const row of fresh) this.#attach(row);
    this.#arrange();
    for (const row of fresh) this.#setHeight(row, row.element?.getBoundingClientRect().height);
    if (anchor?.isConnected) this.#scroller.scrollTop += anchor.getBoundingClientRect().top - before;
    return true;
  }

  /** The rows that the document should have, the nearest to the view first. @param {number} until */
  #wanted(until) {
    const last = this.#rows.length - 1;
    const { top, bottom } = this.#view();
    const [from, to] = this.#isPrinting ? [0, last] : [rowAt(this.#tops, top), rowAt(this.#tops, bottom)];
    const wanted = new Set(this.#rows.slice(from, to + 1));
    for (const row of this.#staying(rowAt(this.#tops, top - FAR), rowAt(this.#tops, bottom + FAR))) wanted.add(row);
    const [first, end] = [rowAt(this.#tops, top - NEAR), rowAt(this.#tops, bottom + NEAR)];
    const near = [...this.#rows.slice(to + 1, end + 1), ...this.#rows.slice(first, Math.max(first, from)).reverse()];
    let isLate = false; // only after a row was added: layout alone may take longer than the budget
    for (const row of near) {
      if (wanted.has(row)) continue;
      if (isLate) {
        this.#drawSoon();
        break;
      }
      isLate = !this.#drawn.has(row) && performance.now() > until;
      row.element ??= row.draw?.(); // now, so that its time counts
      wanted.add(row);
    }
    return wanted;
  }

  /** Drawn rows that are not to be removed. @param {number} first @param {number} last index of the rows that are not far */
  #staying(first, last) {
    const { anchorNode, focusNode, isCollapsed } = getSelection() ?? {};
    const selected = isCollapsed
      ? []
      : [anchorNode, focusNode].flatMap((node) => this.#numbers.get(this.#rowOf(node)) ?? []);
    const [from, to] = [Math.min(...selected), Math.max(...selected)];
    return [...this.#drawn].filter((row) => {
      const index = /** @type {number} */ (this.#numbers.get(row));
      return (index >= first && index <= last) || (index >= from && index <= to) || isInUse(row.element);
    });
  }

  /** The row that a node is in. @param {Node | null | undefined} node */
  #rowOf(node) {
    while (node && node.parentNode !== this.#list) node = node.parentNode;
    return /** @type {Row} */ ([...this.#drawn].find(({ element }) => element === node));
  }

  /** @param {Event} event a click or an input */
  #noteChange({ type, target }) {
    const element = /** @type {Element} */ (target);
    if (type === "click" && !element.closest(CHANGES)) return;
    const row = this.#rowOf(element);
    if (row) row.changed = true;
  }

  /** @param {Row} row */
  #attach(row) {
    if (row.element) translate(row.element); // the language may have changed while it was away
    row.element ??= row.draw?.();
    this.#drawn.add(row);
    this.#sizes.observe(/** @type {HTMLElement} */ (row.element));
  }

  /** @param {Row} row */
  #hide(row) {
    const { element } = row;
    if (!element || !this.#drawn.delete(row)) return;
    this.#sizes.unobserve(element);
    element.remove();
    if (row.draw && !row.changed && !element.matches(".growing")) delete row.element;
  }

  /** Puts the drawn rows and the gaps between them in order. Elements that are in the document stay where they are. */
  #arrange() {
    this.#inView.disconnect();
    for (const gap of this.#list.querySelectorAll(":scope > .gap")) gap.remove();
    const rows = [...this.#drawn].map((row) => ({ row, index: this.#numbers.get(row) ?? 0 }));
    let next = this.#list.firstElementChild;
    let end = 0; // the first row without a place
    const put = (/** @type {HTMLElement} */ element) => {
      if (element === next) next = next.nextElementSibling;
      else this.#list.insertBefore(element, next);
    };
    for (const { row, index } of rows.sort((a, b) => a.index - b.index)) {
      const element = /** @type {HTMLElement} */ (row.element);
      element.ariaPosInSet = String(index + 1);
      element.ariaSetSize = String(this.#rows.length);
      if (index > end) put(this.#gap(end, index));
      put(element);
      end = index + 1;
    }
    if (end < this.#rows.length) put(this.#gap(end, this.#rows.length));
  }

  /** Stands for rows without elements. @param {number} from @param {number} to index of the row after it */
  #gap(from, to) {
    const gap = h("li", { class: "gap", "aria-hidden": true });
    gap.style.height = `${this.#tops[to] - this.#tops[from] - this.#between}px`;
    this.#gaps.set(gap, [from, to]);
    this.#inView.observe(gap);
    return gap;
  }

  /** @param {ResizeObserverEntry[]} entries */
  #measured(entries) {
    const rows = new Map([...this.#drawn].map((row) => [row.element, row]));
    const { top } = this.#scroller.getBoundingClientRect();
    let above = 0; // px that rows above the view have grown by
    const place = (/** @type {ResizeObserverEntry} */ { target }) =>
      this.#numbers.get(/** @type {Row} */ (rows.get(/** @type {HTMLElement} */ (target)))) ?? 0;
    // From the first row on: what a row is moved by is the growth of those before it. They come in the order of observe().
    for (const { target, borderBoxSize } of entries.toSorted((a, b) => place(a) - place(b))) {
      const row = rows.get(/** @type {HTMLElement} */ (target));
      if (!row) continue;
      const height = borderBoxSize[0].blockSize;
      const grown = height && height - row.height;
      if (target.getBoundingClientRect().bottom - grown - above <= top) above += grown;
      this.#setHeight(row, height);
    }
    if (above) this.#scroller.scrollTop += above;
    if (this.#isStale) this.#drawSoon(); // not now: rows that are observed in here would be reported as a loop
  }

  /** @param {Row} row @param {number} [height] 0: the list is hidden */
  #setHeight(row, height) {
    if (!height || height === row.height) return;
    row.height = height;
    this.#isStale = true;
  }

  /** Computes where each row begins. */
  #layOut() {
    if (!this.#isStale) return;
    this.#isStale = false;
    this.#between = parseFloat(getComputedStyle(this.#list).rowGap) || 0;
    this.#tops = [0];
    for (const { height } of this.#rows) this.#tops.push(this.#tops[this.#tops.length - 1] + height + this.#between);
    this.#numbers = new Map(this.#rows.map((row, index) => [row, index]));
  }

  /** What is in view, in px from the top of the first row. */
  #view() {
    if (this.#scroller === this.#list) {
      const top = this.#list.scrollTop;
      return { top, bottom: top + this.#list.clientHeight };
    }
    const top = this.#scroller.getBoundingClientRect().top - this.#list.getBoundingClientRect().top;
    return { top, bottom: top + this.#scroller.clientHeight };
  }

  #firstInView() {
    const { top } = this.#scroller.getBoundingClientRect();
    const elements = [...this.#list.children].filter((element) => !element.matches(".gap"));
    return elements.find((element) => element.getBoundingClientRect().bottom > top);
  }
}

/** Whether a row's element cannot leave the document without harm. @param {HTMLElement} [element] */
function isInUse(element) {
  if (!element) return false;
  if (element.matches(STAYS) || element.querySelector(STAYS)) return true;
  return [...element.querySelectorAll("audio")].some(({ paused }) => !paused);
}
