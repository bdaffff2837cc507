/** Puts texts into the page. Phrases are put again when the page's language changes. */
import { Phrase, t } from "../language/phrase.js";

/** @typedef {string | Phrase} Text */

// Global, because separate bundles each have a copy of this module.
/** @type {WeakMap<Node, Map<string, () => void>>} node -> property -> puts its phrase again */
const phrases = (globalThis.wispPhrases ??= new WeakMap());

/**
 * Sets a property to a text, or an attribute if the name has a dash.
 * @param {Node} node @param {string} name @param {Text} text
 */
export function show(node, name, text) {
  bind(node, name, text instanceof Phrase, () => {
    if (name.includes("-")) /** @type {Element} */ (node).setAttribute(name, String(text));
    else Object.assign(node, { [name]: String(text) });
  });
}

/** Sets the text of an element. @param {Element} element @param {Text} text */
export const say = (element, text) => show(element, "textContent", text);

/** A text of the catalog or the engine. Those that tools/texts.py lists have translations. @param {string} text */
export const translated = (text) => t(text);

/** @param {Phrase} phrase */
export function textNode(phrase) {
  const node = document.createTextNode("");
  show(node, "data", phrase);
  return node;
}

/** @param {Node} node @param {string} name @param {boolean} isPhrase whether to put it again @param {() => void} put */
function bind(node, name, isPhrase, put) {
  const bound = phrases.get(node) ?? new Map();
  if (isPhrase) phrases.set(node, bound.set(name, put));
  else bound.delete(name);
  put();
}

/** Puts the phrases of an element in the page's language. @param {HTMLElement} root default: those of the document */
export function translate(root = document.body) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  const nodes = [walker.currentNode];
  while (walker.nextNode()) nodes.push(walker.currentNode);
  for (const node of nodes) for (const put of phrases.get(node)?.values() ?? []) put();
}

const ATTRIBUTES = ["aria-label", "title", "placeholder"];
const FIXED = "[translate=no], [translate=no] *, code, noscript, script, svg, svg *";
const WORD = /\p{L}/u;

/**
 * Makes phrases of the English texts of index.html. In a text around other elements, these are {0}, {1} and so on.
 * tools/texts.py finds the same texts.
 */
export function adoptPage() {
  for (const element of document.body.querySelectorAll(`:not(${FIXED})`)) {
    for (const name of ATTRIBUTES) {
      const text = element.getAttribute(name) ?? "";
      if (WORD.test(text) && !text.includes("://")) show(element, name, t(text));
    }
    const nodes = [...element.childNodes].filter((node) => node instanceof Text && WORD.test(node.data));
    if (nodes.length === 1) adoptText(/** @type {globalThis.Text} */ (nodes[0]));
    if (nodes.length > 1) adoptMixed(element);
  }
}

/** @param {globalThis.Text} node */
function adoptText(node) {
  const [, before, text, after] = /** @type {RegExpExecArray} */ (/^(\s*)(.*?)(\s*)$/s.exec(node.data));
  const phrase = t(plain(text));
  bind(node, "data", true, () => (node.data = before + phrase + after));
}

/** @param {Element} element */
function adoptMixed(element) {
  const children = [...element.children];
  const whole = [...element.childNodes].map((node) =>
    node instanceof Text ? node.data : `{${children.indexOf(/** @type {Element} */ (node))}}`,
  );
  const phrase = t(plain(whole.join("")));
  bind(element, "children", true, () => {
    const pieces = String(phrase).split(/\{(\d)\}/);
    element.replaceChildren(...pieces.map((piece, index) => (index % 2 ? children[Number(piece)] : piece)));
  });
}

/** @param {string} text */
const plain = (text) => text.replace(/\s+/g, " ").trim();
