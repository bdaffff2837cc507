/**
 * Estimates how much a browser draws for an SVG. A kilobyte of nested <use>, or of filters, can block the page for
 * minutes, at each visit of the chat.
 */
import { drawsUnknown, fadesAny, ownCost } from "./svg_effects.js";

const MOST = 10_000; // elements, including each copy that a reference draws
const REFERENCE = /url\(\s*["']?#([^"')\s]+)/g;
const SVG_LINK = "http://www.w3.org/1999/xlink";

/** Whether a drawing is cheap enough to be shown at once. One with circular references is not. @param {Element} root */
export function isCheap(root) {
  const named = new Map([...root.querySelectorAll("[id]")].map((element) => [element.id, element]));
  if ([...root.querySelectorAll("*"), root].some(drawsUnknown)) return false;
  const fades = fadesAny(root);
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
    let cost = ownCost(element, fades);
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

/**
 * The elements that an element draws by reference, and how often.
 * @param {Element} element @param {Map<string, Element>} named @returns {{ target: Element, times: number }[]}
 */
function referred(element, named) {
  // A copy of <use>, a picture of a filter, or the parts of another pattern.
  const link = element.getAttribute("href") ?? element.getAttributeNS(SVG_LINK, "href") ?? "";
  const found = [{ id: link.replace(/^#/, ""), times: 1 }];
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
