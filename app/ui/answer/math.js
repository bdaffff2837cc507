/** Typesets mathematics with KaTeX, which is loaded with the first formula. Until then, and where it fails, TeX is shown. */
import { t } from "../../language/phrase.js";
import { show } from "../texts.js";
import { applyStyle, importPart, partUrl } from "../parts.js";

const MAX_LENGTH = 5_000; // characters of a formula
const OPTIONS = { throwOnError: true, strict: "ignore", trust: false, maxSize: 20, maxExpand: 500 };

/** @type {any} */
let katex = null;
/** @type {Promise<void> | null} */
let loading = null;

/** Loads KaTeX. A failed try may be repeated. */
export function loadMath() {
  return (loading ??= Promise.all([importPart("math"), applyStyle("mathStyle")]).then(
    ([{ default: loaded }]) => void (katex = loaded),
    (error) => {
      loading = null;
      console.warn("Mathematics is shown as TeX:", error);
    },
  ));
}

/** Typesets the formulas in a rendered block, at once if KaTeX is loaded. @param {ParentNode} root */
export function typeset(root) {
  const formulas = /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("code[data-math]"));
  if (!formulas.length) return;
  if (katex) return formulas.forEach(typesetOne);
  if (partUrl("math")) void loadMath().then(() => katex && formulas.forEach(typesetOne));
}

/** @param {HTMLElement} code */
function typesetOne(code) {
  const tex = code.textContent ?? "";
  if (tex.length > MAX_LENGTH) return;
  const display = code.dataset.math === "display";
  const formula = document.createElement("span");
  formula.className = display ? "math wide" : "math";
  formula.dir = "ltr";
  if (display) {
    Object.assign(formula, { tabIndex: 0, role: "group" });
    show(formula, "aria-label", t("Formula"));
  }
  try {
    katex.render(tex, formula, { ...OPTIONS, displayMode: display }); // builds elements: no HTML is parsed
  } catch (error) {
    code.title = `${error}`; // of the syntax, or nested too deep
    return;
  }
  code.replaceWith(formula);
}

/** The text of an element with formulas as TeX, which KaTeX shows twice: for eyes and for screen readers. @param {Element} element */
export function textWithTex(element) {
  const copy = /** @type {Element} */ (element.cloneNode(true));
  for (const formula of copy.querySelectorAll(".katex"))
    formula.replaceWith(formula.querySelector("annotation")?.textContent ?? "");
  return copy.textContent ?? "";
}
