/**
 * Estimates how much a browser draws for an SVG. A kilobyte of nested <use> can draw a million shapes and block the page
 * for minutes, at each visit of the chat.
 */

const MOST = 10_000; // elements, including each copy that a reference draws
const FILTER = 200; // the cost of a filter's pixels, in elements
const REFERENCE = /url\(\s*["']?#([^"')\s]+)/g;
const HIDDEN = /data:|\\/i; // a picture inside the drawing, of any size, or an escape that hides a reference
const REFERRING = /url\(\s*["']?\s*#/i;
const SVG_LINK = "http://www.w3.org/1999/xlink";

/** Whether a drawing is cheap enough to be shown at once. One with circular references is not. @param {Element} root */
export function isCheap(root) {
  const named = new Map([...root.querySelectorAll("[id]")].map((element) => [element.id, element]));
  if ([...root.querySelectorAll("*"), root].some(isUnknown)) return false;
  /** @type {Map<Element, number>} */
  const known = new Map();
  /** @type {Set<Element>} elements whose cost is being counted */
  const open = new Set();

  /** @param {Element} element @returns {number} infinite above MOST */
  const costOf = (element) => {
    const before = known.get(element);
    if (before !== undefined) return before;
    if (open.has(element)) return Infinity;
    open.add(element);
    let cost = element.localName === "filter" ? FILTER : 1;
    for (const child of element.children) cost += costOf(child);
    for (const { target, times } of referred(element, named)) if (cost <= MOST) cost += times * costOf(target);
    open.delete(element);
    if (cost > MOST) cost = Infinity;
    known.set(element, cost);
    return cost;
  };
  try {
    return costOf(root) <= MOST;
  } catch {
    return false; // nested too deeply
  }
}

/** Whether an element's cost cannot be counted: it has a picture inside, or style rules with references. @param {Element} element */
function isUnknown(element) {
  const rules = element.localName === "style" ? (element.textContent ?? "") : "";
  if (HIDDEN.test(rules) || REFERRING.test(rules)) return true;
  return [...element.attributes].some(({ value }) => HIDDEN.test(value));
}

/**
 * The elements that an element draws by reference, and how often.
 * @param {Element} element @param {Map<string, Element>} named @returns {{ target: Element, times: number }[]}
 */
function referred(element, named) {
  const found = [];
  if (element.localName === "use") {
    const link = element.getAttribute("href") ?? element.getAttributeNS(SVG_LINK, "href") ?? "";
    found.push({ id: link.replace(/^#/, ""), times: 1 });
  }
  for (const { name, value } of element.attributes) {
    // A marker is drawn at each point. A point takes at least two characters.
    const points = (element.getAttribute("points") ?? element.getAttribute("d") ?? "").length / 2;
    const times = /marker/.test(name + value) ? Math.max(1, points) : 1;
    for (const [, id] of value.matchAll(REFERENCE)) found.push({ id, times });
  }
  return found.flatMap(({ id, times }) => {
    const target = named.get(id);
    return target ? [{ target, times }] : [];
  });
}
