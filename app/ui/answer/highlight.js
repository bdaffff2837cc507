/**
 * Colours code with highlight.js, which marks words with classes alone, as the page's policy requires. Its common
 * languages are loaded with the first code block, all of them with the first block in another one.
 */
import DOMPurify from "dompurify";
import { importPart, partUrl } from "../parts.js";

const MAX_LENGTH = 40_000; // characters; longer code stays plain
const FIRST_PART = 1000; // characters that are tried first, then twice as many, and so on
const SLOW_MS = 100; // for a part: twice as many characters may take four times as long
const MAX_GROWING = 8_000; // of code that is coloured again with each piece
const MARKS = { ALLOWED_TAGS: ["span"], ALLOWED_ATTR: ["class"], RETURN_DOM_FRAGMENT: true };
const PLAIN = new Set(["", "text", "txt", "plain", "plaintext", "output", "console", "none"]);

const MOST_TRIED = 50; // codes whose trial is remembered

/** @type {Map<string, boolean>} language and code -> whether colouring it is quick; the same code looks the same again */
const tried = new Map();
/** @type {any} highlight.js with the languages that are loaded */
let library = null;
/** @type {Map<string, Promise<void>>} */
const loading = new Map();

/** @param {"highlight" | "highlightAll"} part */
function load(part) {
  const found = loading.get(part);
  if (found) return found;
  const loaded = importPart(part).then(
    (module) => void (library = module.default),
    (error) => {
      loading.delete(part);
      console.warn("Code is shown without colours:", error);
    },
  );
  loading.set(part, loaded);
  return loaded;
}

/** Loads the languages that a name may be of. @param {string} language */
export async function loadLanguage(language) {
  await load("highlight");
  if (library && !library.getLanguage(language)) await load("highlightAll");
}

/**
 * Shows code in an element, coloured if that language's grammar is loaded; else loads it and calls `later`.
 * @param {HTMLElement} element @param {string} code @param {string} language as the answer names it
 * @param {boolean} growing more of the code is coming @param {() => void} later
 */
export function showCode(element, code, language, growing, later) {
  element.textContent = code;
  const name = language.toLowerCase();
  if (code.length > (growing ? MAX_GROWING : MAX_LENGTH) || PLAIN.has(name) || !partUrl("highlight")) return;
  if (!known(name)) return void loadLanguage(name).then(() => known(name) && later());
  const value = coloured(code, name);
  if (value) element.replaceChildren(/** @type {any} */ (DOMPurify.sanitize(value, MARKS)));
}

/**
 * The code with marks. Null: it would take too long, as a word of thousands of letters does in some languages, whose
 * patterns take time that grows with its square.
 * @param {string} code @param {string} language @returns {string | null}
 */
function coloured(code, language) {
  const mark = (/** @type {string} */ part) => library.highlight(part, { language, ignoreIllegals: true }).value;
  const isQuick = () => {
    for (let length = FIRST_PART; length < code.length; length *= 2) {
      const started = performance.now();
      mark(code.slice(0, length));
      if (performance.now() - started > SLOW_MS) return false;
    }
    return true;
  };
  const key = `${language} ${code}`;
  const found = tried.get(key) ?? isQuick();
  if (code.length > FIRST_PART) tried.set(key, found);
  if (tried.size > MOST_TRIED) tried.delete([...tried.keys()][0]);
  return found ? mark(code) : null;
}

/** @param {string} name */
const known = (name) => Boolean(library?.getLanguage(name));
