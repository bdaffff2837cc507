/** Typesets mathematics with KaTeX, which is loaded with the first formula. Until then, and where it fails, TeX is shown. */
import { t } from "../../language/phrase.js";
import { show } from "../texts.js";
import { applyStyle, importPart, partUrl } from "../parts.js";

const MAX_LENGTH = 5_000; // characters of a formula
const MAX_EXPAND = 500; // macros of a formula
const MAX_EXPANDED = 20_000; // characters that a formula's own macros may become
const MAX_LEVELS = 100; // of a formula's parse tree: KaTeX and layout take seconds for what is nested deeper
const MAX_DEPTH = 400; // elements within each other: layout recurses, and an overflow of its stack ends the tab
const MAX_OF_BLOCK = 8_000; // elements of a block's formulas: one that grows is rendered again and again
const DEFINES = /\\(?:[gex]?def|let|futurelet|(?:re)?newcommand|providecommand)\b/;
const SLICE_MS = 60; // of a frame, for blocks that were shown before KaTeX was loaded
const WIDE = "data-own-width"; // of pictures that have their attribute's width
const OPTIONS = { throwOnError: true, strict: "ignore", trust: false, maxSize: 20 };

/** @typedef {{ left: number }} Budget elements that the formulas of one answer may still have */

/** @returns {Budget} */
export const newBudget = () => ({ left: 60_000 });

/** @type {any} */
let katex = null;
/** @type {Promise<void> | null} */
let loading = null;
/** @type {(() => void)[]} typeset a block each, once KaTeX is loaded */
const waiting = [];

/** Loads KaTeX. A failed try may be repeated. */
export function loadMath() {
  return (loading ??= Promise.all([importPart("math"), applyStyle("mathStyle")]).then(
    ([{ default: loaded }]) => {
      katex = loaded;
      typesetWaiting();
    },
    (error) => {
      loading = null;
      console.warn("Mathematics is shown as TeX:", error);
    },
  ));
}

/** Typesets blocks that were shown before KaTeX was loaded. @param {number} [ms] that it may take now; the next frames do the rest */
export function typesetWaiting(ms = SLICE_MS) {
  const until = performance.now() + ms;
  while (katex && waiting.length && performance.now() < until) waiting.shift()?.();
  if (katex && waiting.length) requestAnimationFrame(() => typesetWaiting());
}

/**
 * Typesets the formulas in a rendered block, at once if KaTeX is loaded. Those that the budget lacks stay TeX.
 * @param {ParentNode} root @param {Budget} budget @returns {() => void} gives back what the block took
 */
export function typeset(root, budget) {
  const formulas = /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("code[data-math]"));
  let taken = 0;
  let isReplaced = false; // perhaps before KaTeX was loaded
  const all = () => {
    for (const code of formulas) {
      if (isReplaced || budget.left <= 0 || taken >= MAX_OF_BLOCK) return;
      const size = typesetOne(code);
      taken += size;
      budget.left -= size;
    }
  };
  if (formulas.length && katex) all();
  else if (formulas.length && partUrl("math")) {
    waiting.push(all);
    void loadMath();
  }
  return () => {
    budget.left += taken;
    isReplaced = true;
  };
}

/** Replaces TeX by the formula; returns how many elements were made. @param {HTMLElement} code */
function typesetOne(code) {
  const tex = code.textContent ?? "";
  if (tex.length > MAX_LENGTH || !code.parentNode) return 0;
  const own = Math.floor(MAX_EXPANDED / tex.length);
  const maxExpand = DEFINES.test(tex) ? Math.min(MAX_EXPAND, own) : MAX_EXPAND;
  const display = code.dataset.math === "display";
  const formula = document.createElement("span");
  formula.className = display ? "math wide" : "math";
  formula.dir = "ltr";
  if (display) {
    Object.assign(formula, { tabIndex: 0, role: "group" });
    show(formula, "aria-label", t("Formula"));
  }
  try {
    const options = { ...OPTIONS, maxExpand, displayMode: display };
    const nodes = nodesOfNested(katex.__parse(tex, options)); // its own macros are expanded
    if (nodes) return nodes;
    formula.append(elementsOf(katex.__renderToDomTree(tex, options))); // no HTML is parsed
    for (const svg of formula.querySelectorAll("svg"))
      if (svg.hasAttribute(WIDE)) svg.style.width = svg.getAttribute("width") ?? "";
  } catch (error) {
    code.title = `${error}`; // of the syntax, or nested too deep
    return 0;
  }
  const size = formula.getElementsByTagName("*").length;
  if (!isDeep(formula)) code.replaceWith(formula);
  return size; // of one that is refused, too: it took as long
}

/**
 * The elements of KaTeX's tree. The page's content security policy forbids the style attributes that it gives some: the
 * width of accents and tall brackets, which its style sheet would stretch, and looks of MathML, which nobody sees.
 * @param {any} tree @returns {Node}
 */
function elementsOf(tree) {
  const nodes = [tree];
  for (let node = nodes.pop(); node; node = nodes.pop()) {
    if (node.attributes?.style) {
      delete node.attributes.style;
      node.attributes[WIDE] = "";
    }
    nodes.push(...(node.children ?? []));
  }
  return tree.toNode();
}

/** The nodes that a parse tree has where it is nested too deep; 0 where it is not. @param {any} tree */
function nodesOfNested(tree) {
  let level = [tree];
  let nodes = 1;
  for (let depth = 0; depth <= MAX_LEVELS; depth++) {
    level = level.flatMap((node) => Object.keys(node).flatMap((key) => (key === "loc" ? [] : node[key])));
    level = level.filter((node) => node && typeof node === "object");
    if (!level.length) return 0;
    nodes += level.length;
  }
  return nodes;
}

/** Whether a formula's elements are nested too deep. @param {Element} formula */
function isDeep(formula) {
  let level = [formula];
  for (let depth = 0; level.length && depth <= MAX_DEPTH; depth++) level = level.flatMap((one) => [...one.children]);
  return level.length > 0;
}

/** The text of an element with formulas as TeX, which KaTeX shows twice: for eyes and for screen readers. @param {Element} element */
export function textWithTex(element) {
  const copy = /** @type {Element} */ (element.cloneNode(true));
  for (const formula of copy.querySelectorAll(".katex"))
    formula.replaceWith(formula.querySelector("annotation")?.textContent ?? "");
  return copy.textContent ?? "";
}
