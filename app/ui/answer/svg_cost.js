/**
 * How much a browser draws for an SVG. A kilobyte of nested <use> is a million shapes, which would block the page for
 * minutes, and again at each visit of the chat.
 */

const MOST = 10_000; // elements, with the copies of those that others refer to
const FILTER = 200; // elements that the pixels of a filter cost about as much as
const REFERENCE = /url\(\s*["']?#([^"')\s]+)/g;
const HIDDEN = /data:|\\/i; // a picture inside the drawing, of any size, or an escape that hides a reference
const REFERRING = /url\(\s*["']?\s*#/i;
const SVG_LINK = "http://www.w3.org/1999/xlink";

/** Whether a drawing is cheap enough to be shown at once. Circular references are not. @param {Element} root */
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

/** Whether what an element draws is not known: other pictures, and what rules of a style refer to. @param {Element} element */
function isUnknown(element) {
  const rules = element.localName === "style" ? (element.textContent ?? "") : "";
  if (HIDDEN.test(rules) || REFERRING.test(rules)) return true;
  return [...element.attributes].some(({ value }) => HIDDEN.test(value));
}

/**
 * What an element has drawn besides its children, and how often.
 * @param {Element} element @param {Map<string, Element>} named @returns {{ target: Element, times: number }[]}
 */
function referred(element, named) {
  const found = [];
  if (element.localName === "use") {
    const link = element.getAttribute("href") ?? element.getAttributeNS(SVG_LINK, "href") ?? "";
    found.push({ id: link.replace(/^#/, ""), times: 1 });
  }
  for (const { name, value } of element.attributes) {
    // A marker is drawn at each point, which has two characters or more.
    const points = (element.getAttribute("points") ?? element.getAttribute("d") ?? "").length / 2;
    const times = /marker/.test(name + value) ? Math.max(1, points) : 1;
    for (const [, id] of value.matchAll(REFERENCE)) found.push({ id, times });
  }
  return found.flatMap(({ id, times }) => {
    const target = named.get(id);
    return target ? [{ target, times }] : [];
  });
}
