/**
 * The page's texts. `t("{name} is ready.", { name })` makes a phrase: its English text is the key of the translations, and
 * it is translated each time it is shown. Where one English text has two senses, the key names the sense after "|", as in
 * `t("Text|of a snippet")`; it is not shown.
 *
 * Numbers are formatted for the language. The value `n` chooses the plural form. english.js has the English singular
 * forms; the JSON files beside it have the other languages.
 */
import { SINGULAR } from "./english.js";

/**
 * @typedef {string | number | Phrase} Value
 * @typedef {string | Partial<Record<Intl.LDMLPluralRule, string>>} Entry of a language: a text, or one for each plural form
 * @typedef {{ locale: string, rtl: boolean, entries: Record<string, Entry> }} Language
 */

/** @type {Language} */
const ENGLISH = { locale: "en", rtl: false, entries: {} };

// Global, because separate bundles, such as the monitor, each have a copy of this module.
const shared = (globalThis.wispLanguage ??= { current: ENGLISH });

/** A text that is translated when it is shown. toString() has it in the page's language of that moment. */
export class Phrase {
  #make;

  /** @param {() => string} make */
  constructor(make) {
    this.#make = make;
  }

  toString() {
    return this.#make();
  }
}

/** The language of the page. */
export const language = () => shared.current;

/** @param {Partial<Language>} next */
export function setLanguage(next) {
  shared.current = { ...ENGLISH, ...next };
}

/** @param {string} text in English @param {Record<string, Value>} [values] of its `{names}` */
export const t = (text, values = {}) => new Phrase(() => translated(text, values));

/** @typedef {(Value | null | undefined | false)[]} Parts empty ones are left out */

/** Several texts as one. @param {Parts} parts @param {string} [separator] */
export const joined = (parts, separator = " · ") =>
  new Phrase(() =>
    parts
      .filter(Boolean)
      .map((part) => isolated(/** @type {Value} */ (part)))
      .join(separator),
  );

/** Several sentences as one text; no space follows Chinese and Japanese ones. @param {Parts} parts */
export const sentences = (...parts) => new Phrase(() => String(joined(parts, " ")).replace(/(?<=[。！？]) /g, ""));

/** "a, b and c". @param {Value[]} parts */
export const listed = (parts) => new Phrase(() => formatter(Intl.ListFormat, {}).format(parts.map(shown)));

/** @param {number} value @param {Intl.NumberFormatOptions} [options] */
export const number = (value, options = {}) => new Phrase(() => formatter(Intl.NumberFormat, options).format(value));

/** @param {number} time ms since 1970 @param {Intl.DateTimeFormatOptions} [options] */
export const date = (time, options = {}) => new Phrase(() => formatter(Intl.DateTimeFormat, options).format(time));

/** @type {Map<string, any>} (kind, locale, options) -> formatter: making one is slow */
const formatters = new Map();

/**
 * @template F, O @param {new (locale: string, options: O) => F} kind @param {O} options @returns {F}
 */
function formatter(kind, options) {
  const { locale } = language();
  const key = `${kind.name} ${locale} ${JSON.stringify(options)}`;
  const made = formatters.get(key) ?? new kind(locale, options);
  formatters.set(key, made);
  return made;
}

/** @param {string} text @param {Record<string, Value>} values */
function translated(text, values) {
  const entry = language().entries[text] ?? SINGULAR[text] ?? "";
  const form = typeof entry === "string" ? entry : (entry[pluralRule(values.n)] ?? entry.other);
  const filled = (form || text.split("|")[0]).replace(/\{(\w+)\}/g, (braced, name) => {
    const value = values[name];
    return value === undefined ? braced : isolated(value);
  });
  return form ? directed(filled) : filled;
}

/**
 * Has a translation into a right-to-left language be read from the right (U+200F), also where it begins with a name and
 * its element's direction is that of its first letter.
 * @param {string} text
 */
const directed = (text) =>
  language().rtl && /^\P{L}*(?![\u0590-\u08ff])\p{L}.*[\u0590-\u08ff]/su.test(text) ? `\u200f${text}` : text;

/** @param {Value} n */
const pluralRule = (n) => formatter(Intl.PluralRules, {}).select(Number(n));

/** @param {Value} value */
const shown = (value) => String(typeof value === "number" ? number(value) : value);

/** Isolates a name within right-to-left text (U+2068, U+2069), or its punctuation would move. @param {Value} value */
const isolated = (value) => (language().rtl && typeof value === "string" ? `\u2068${value}\u2069` : shown(value));
