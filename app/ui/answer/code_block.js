/** A block of code: its language, buttons to save, copy and preview it, colours, and long code folded. */
import { t } from "../../language/phrase.js";
import { copyButton } from "../copy.js";
import { h, iconButton } from "../dom.js";
import { saveFile } from "../save_file.js";
import { say } from "../texts.js";
import { previewOf } from "./artifact.js";
import { codeFileName } from "./code_file.js";
import { showCode } from "./highlight.js";

const MOST_LINES = 40; // of code that is shown whole
const FOLDED_LINES = 25; // code.css shows so many

export class CodeBlock {
  #code = h("code");
  #language = h("span", { class: "code-language" });
  #tools = h("div", { class: "code-tools" });
  #pre = h("pre", { tabIndex: 0, role: "group", "aria-label": t("Code"), dir: "ltr" }, this.#code);
  #fold = h("button", { type: "button", class: "code-fold", hidden: true, on: { click: () => this.#toggle() } });
  #text = "";
  #name = "";
  /** @type {boolean | null} null: nothing is shown yet */
  #growing = null;
  #lines = 0;
  /** @type {ReturnType<typeof previewOf>} */
  #preview = null;

  /** @param {string} text @param {string} language @param {boolean} growing more of it is coming */
  constructor(text, language, growing) {
    const save = iconButton("fetch", t("Save the code as a file"), () =>
      saveFile(codeFileName(this.#name), [`${this.#text}\n`]),
    );
    this.#tools.append(
      save,
      copyButton(t("Copy the code"), () => this.#text),
    );
    const head = h("div", { class: "code-head" }, this.#language, this.#tools);
    this.element = h("div", { class: "block code" }, head, this.#pre, this.#fold);
    this.update(text, language, growing);
  }

  /** Returns whether that changes it. @param {string} text @param {string} language @param {boolean} growing */
  update(text, language, growing) {
    if (text === this.#text && language === this.#name && growing === this.#growing) return false;
    this.#text = text;
    this.#name = language;
    this.#growing = growing;
    say(this.#language, language || t("text"));
    this.#show();
    if (!growing) this.#finish();
    return true;
  }

  #show() {
    showCode(this.#code, this.#text, this.#name, this.#growing === true, () => this.#show());
  }

  /** Adds what needs the whole code. */
  #finish() {
    this.#lines = this.#text.split("\n").length;
    const long = this.#lines > MOST_LINES;
    this.#fold.hidden = !long;
    this.#setFolded(long);
    this.#preview?.end();
    this.#preview?.button.remove();
    this.element.classList.remove("previewing");
    this.#preview = previewOf(this.#name, () => this.#text, this.element);
    if (this.#preview) this.#tools.prepend(this.#preview.button);
  }

  #toggle() {
    this.#setFolded(!this.element.classList.contains("folded"));
    if (this.element.classList.contains("folded")) this.element.scrollIntoView({ block: "nearest" });
  }

  /** @param {boolean} folded */
  #setFolded(folded) {
    this.element.classList.toggle("folded", folded);
    this.#fold.setAttribute("aria-expanded", String(!folded));
    const all = t("Show all {n} lines", { n: this.#lines });
    say(this.#fold, folded ? all : t("Show the first {n} lines", { n: FOLDED_LINES }));
  }
}
