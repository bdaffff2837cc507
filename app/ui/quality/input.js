/** The text that is measured: written into a field, or a file. */
import { joined, t } from "../../language/phrase.js";
import { h, iconButton } from "../dom.js";
import { bytes } from "../format.js";
import { say, show } from "../texts.js";

/** @typedef {import("../texts.js").Text} Text */

const WRITTEN = t("the text in the field");

export class TextInput {
  /** @type {File | null} */
  #file = null;
  #name = h("span", { dir: "auto" });
  #field = h("textarea", { rows: 6, dir: "auto", spellcheck: false });
  #input = h("input", { class: "hidden", type: "file", tabIndex: -1, "aria-label": t("A text file") });
  #open = h("button", { type: "button", class: "button", icon: "file" }, t("Open a file"));
  #label = h("span");
  #written = h("label", { class: "field" }, this.#label, this.#field);
  #chosen = h(
    "p",
    { class: "quality-file", hidden: true },
    this.#name,
    iconButton("close", t("Remove the file"), () => this.#choose(null)),
  );
  element = h("div", { class: "quality-text" }, this.#written, this.#chosen, this.#open, this.#input);

  constructor() {
    this.#open.onclick = () => this.#input.click();
    this.#input.onchange = () => {
      this.#choose(this.#input.files?.[0] ?? null);
      this.#input.value = "";
    };
  }

  /** @param {Text} label @param {Text} placeholder @param {string} accept files that are offered */
  describe(label, placeholder, accept) {
    say(this.#label, label);
    show(this.#field, "placeholder", placeholder);
    this.#input.accept = accept;
  }

  /** @param {boolean} disabled */
  lock(disabled) {
    for (const part of this.element.querySelectorAll("textarea, button")) Object.assign(part, { disabled });
  }

  /** What the figures are of. @returns {Text} */
  get name() {
    return this.#file?.name ?? WRITTEN;
  }

  /** Reads the text. Throws a phrase's text if there is none. */
  async read() {
    const text = this.#file ? await this.#file.text() : this.#field.value;
    if (text.includes("\0")) throw new Error(`${t("{name} is no text file.", { name: this.#file?.name ?? "" })}`);
    if (text.trim()) return text;
    throw new Error(`${this.#file ? t("The file is empty.") : t("Write or paste a text, or open a file.")}`);
  }

  /** @param {File | null} file */
  #choose(file) {
    this.#file = file;
    this.#written.hidden = file !== null;
    this.#chosen.hidden = file === null;
    if (file) say(this.#name, joined([file.name, bytes(file.size)]));
    this.#open.focus();
  }
}
