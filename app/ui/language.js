/** The language of the page: the first of the browser's that it has, until the user chooses another in the settings. */
import { language, setLanguage, t } from "../language/phrase.js";
import { byId, h } from "./dom.js";
import { notify } from "./notices.js";
import { partUrl } from "./parts.js";
import { adoptPage, translate } from "./texts.js";

const STORED = "wisp.language";

/** @type {Record<string, string>} code -> the language's own name */
const LANGUAGES = {
  en: "English",
  de: "Deutsch",
  es: "Español",
  fr: "Français",
  ja: "日本語",
  zh: "简体中文",
  ar: "العربية",
};

/** @param {() => void} changed updates texts outside of the document's body, such as the window's title */
export function startLanguage(changed) {
  adoptPage();
  const field = /** @type {HTMLSelectElement} */ (byId("language"));
  field.replaceChildren(
    ...Object.entries(LANGUAGES).map(([code, name]) => h("option", { value: code, lang: code }, name)),
  );
  let shown = "en";

  const use = async (/** @type {string} */ code) => {
    field.value = code;
    try {
      const entries = await entriesOf(code);
      if (field.value !== code) return; // another one was chosen meanwhile
      shown = code;
      setLanguage({ locale: localeOf(code), rtl: code === "ar", entries });
      Object.assign(document.documentElement, { lang: code, dir: language().rtl ? "rtl" : "ltr" });
      translate();
      changed();
    } catch {
      if (field.value !== code) return;
      field.value = shown;
      const text = t("{name} cannot be loaded.", { name: LANGUAGES[code] });
      notify({ key: "language", text, more: t("Check the connection and try again."), kind: "error" });
    }
  };
  field.addEventListener("input", (event) => {
    event.stopPropagation(); // the form's listener stores settings of requests
    localStorage.setItem(STORED, field.value);
    void use(field.value);
  });
  void use(preferred());
}

/** The address of a language's file; null for English, which needs none. */
const languageUrl = (/** @type {string} */ code) => partUrl(`language${code[0].toUpperCase()}${code.slice(1)}`);

/** @param {string} code @returns {Promise<import("../language/phrase.js").Language["entries"]>} */
async function entriesOf(code) {
  const url = languageUrl(code);
  if (!url) return {};
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: HTTP status ${response.status}`);
  return response.json();
}

/** The user's choice, else the first of the browser's languages that the page has. */
function preferred() {
  const codes = [localStorage.getItem(STORED) ?? "", ...navigator.languages.map(codeOf), "en"];
  return codes.find((code) => Object.hasOwn(LANGUAGES, code)) ?? "en";
}

/** The language with the browser's region, for numbers and dates. @param {string} code */
function localeOf(code) {
  const locale = navigator.languages.find((other) => codeOf(other) === code) ?? code;
  return code === "ar" ? `${locale}-u-nu-latn` : locale; // digits 0 to 9, as in the names of models and in number fields
}

/** @param {string} locale */
const codeOf = (locale) => locale.split("-")[0].toLowerCase();
