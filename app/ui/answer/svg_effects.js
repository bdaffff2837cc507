/** What the effects of an SVG cost, in elements: filters, masks and blending take time for each pixel that they cover. */

const PRIMITIVE = 200; // of a step of a filter, and of the filter itself
const LAYER = 30; // of what is drawn apart, and then masked, clipped or blended
const FADED = 5; // of what is drawn apart, and then faded

const HIDDEN = /data:|\\/i; // a picture inside the drawing, of any size, or an escape that hides a reference
const REFERRING = /url\(\s*["']?\s*#/i;
const FILTER = /^\s*(?:none|url\([^()]*\))\s*$/i;
const STYLED_FILTER = /filter\s*:\s*(?:none|url\([^()]*\))\s*(?:;|$)/gi;
const RULED = /filter|mask|clip|blend/i; // effects that a rule of a <style> may give to many elements
const FADES = /(?<!-)opacity/i;
const ANIMATED = /^(?:xlink:)?href$|filter|mask|clip|marker|style|class/i; // attributes whose values are not seen here
const LAYERED = /mask|clip|blend|isolation/i;

/** Whether an element's cost cannot be counted: it hides it, or takes longer the larger the drawing is shown. @param {Element} element */
export function drawsUnknown(element) {
  const { localName } = element;
  if (localName === "style") {
    const rules = element.textContent ?? "";
    if (HIDDEN.test(rules) || REFERRING.test(rules) || RULED.test(rules)) return true;
  }
  if (localName === "feMorphology") return true; // each pixel reads all others of its radius
  if (/^(?:animate|set)/.test(localName)) {
    const name = element.getAttribute("attributeName") ?? "";
    if (ANIMATED.test(name) || element.closest("filter")) return true;
  }
  return [...element.attributes].some(({ name, value }) => HIDDEN.test(value) || isFilter(name, value));
}

/** Whether an attribute has filters of its own, such as blur(9px). @param {string} name @param {string} value */
function isFilter(name, value) {
  if (name === "style") return /filter/i.test(value.replace(STYLED_FILTER, ""));
  return name === "filter" && !FILTER.test(value);
}

/** Whether rules of a drawing may fade any element. @param {Element} root */
export const fadesAny = (root) =>
  [...root.querySelectorAll("style")].some((rules) => FADES.test(`${rules.textContent}`));

/** The cost of an element without what is in it. @param {Element} element @param {boolean} fades rules may fade it */
export function ownCost(element, fades) {
  const { localName } = element;
  if (localName === "filter") return PRIMITIVE;
  if (/^fe(?!Func|MergeNode|.*Light$)/.test(localName)) return PRIMITIVE + cells(element);
  const style = element.getAttribute("style") ?? "";
  if (LAYERED.test(style) || element.hasAttribute("mask") || element.hasAttribute("clip-path")) return LAYER;
  const isFaded = element.hasAttribute("opacity") || element.getAttribute("attributeName") === "opacity";
  return fades || isFaded || FADES.test(style) ? FADED : 1;
}

/** The cells of the matrix that a step of a filter reads for each pixel. @param {Element} step */
function cells(step) {
  const [width = 3, height = width] = (step.getAttribute("order") ?? "").match(/[\d.e+]+/gi)?.map(Number) ?? [];
  return step.localName === "feConvolveMatrix" ? width * height || Infinity : 0;
}
