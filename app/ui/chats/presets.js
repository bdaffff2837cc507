/** Named things that the user writes: assistants and snippets. Stored in localStorage, edited in a sheet. */
import { t } from "../../language/phrase.js";
import { isObject, isText, storedList } from "../../storage/local_json.js";
import { h, iconButton } from "../dom.js";
import { LongList } from "../long_list.js";
import { announce, offerUndo } from "../notices.js";

/**
 * @typedef {{ id: string, name: string }} Preset
 * @typedef {import("../texts.js").Text} Text
 *
 * @typedef {object} Field of the form
 * @property {string} name
 * @property {Text} label
 * @property {"text" | "long" | "number"} kind
 * @property {boolean} [required]
 * @property {Text} [note]
 * @property {Record<string, string | number>} [limits] of a number: min, max, step
 */

/** @template {Preset} P */
export class Presets {
  /** @type {P[]} */
  all = [];
  /** @type {(() => void)[]} */
  #listeners = [];

  /** @type {unknown[]} those of another version, or damaged, which stay stored */
  #others = [];
  #isPreset;

  /** @param {string} key in localStorage @param {(preset: any) => boolean} isWhole whether it has what these presets have */
  constructor(key, isWhole) {
    this.key = key;
    this.#isPreset = (/** @type {unknown} */ one) =>
      isObject(one) && isText(one.id) && isText(one.name) && isWhole(one);
    this.#read();
    // Another tab may write it.
    window.addEventListener("storage", (event) => event.key === key && (this.#read(), this.#tell()));
  }

  /** @param {() => void} listener is called after each change */
  onChange(listener) {
    this.#listeners.push(listener);
  }

  /** @param {P} preset with the id of one that is there, or a new one */
  set(preset) {
    const others = this.all.filter(({ id }) => id !== preset.id);
    this.#write([...others, preset].sort((a, b) => a.name.localeCompare(b.name)));
  }

  /** @param {P} preset */
  remove(preset) {
    this.#write(this.all.filter(({ id }) => id !== preset.id));
    offerUndo(preset.id, t("{name} is deleted.", { name: preset.name }), "", () => this.set(preset));
  }

  #read() {
    this.all = storedList(this.key, /** @type {(one: unknown) => one is P} */ (this.#isPreset));
    this.#others = storedList(this.key, /** @returns {one is unknown} */ (one) => !this.#isPreset(one));
  }

  /** @param {P[]} all */
  #write(all) {
    localStorage.setItem(this.key, JSON.stringify([...all, ...this.#others]));
    this.all = all;
    this.#tell();
  }

  #tell() {
    for (const listener of this.#listeners) listener();
  }
}

/**
 * Fills a section with the list of presets and the form to write them.
 * @template {Preset} P
 * @param {HTMLElement} section
 * @param {object} about
 * @param {Presets<P>} about.presets @param {Text} about.plural @param {Text} about.add the button's text @param {Field[]} about.fields
 * @param {(values: Record<string, string>) => Omit<P, "id">} about.read the preset of a form's values
 * @param {(preset: P) => Record<string, any>} about.values the form's values of a preset
 */
export function startEditor(section, { presets, plural, add: addText, fields, read, values }) {
  const list = h("ul", { class: "document-list", "aria-label": plural });
  const add = h("button", { type: "button", class: "button", icon: "plus" }, addText);
  const form = h("form", { class: "upstream-form", hidden: true, autocomplete: "off" });
  section.append(add, form, list);
  const rows = new LongList(list);
  let id = "";

  const draw = () =>
    rows.show(presets.all.map((preset) => ({ key: preset.id, state: preset, draw: () => item(preset) })));
  const item = (/** @type {P} */ preset) =>
    h(
      "li",
      { class: "document" },
      h("div", {}, h("strong", {}, preset.name)),
      iconButton("edit", t("Edit {name}", { name: preset.name }), () => open(preset)),
      iconButton("trash", t("Delete {name}", { name: preset.name }), () => {
        presets.remove(preset);
        add.focus();
      }),
    );
  const open = (/** @type {P | null} */ preset) => {
    id = preset?.id ?? crypto.randomUUID();
    const cancel = h("button", { type: "button", class: "text-button", on: { click: close } }, t("Cancel"));
    const save = h("button", { type: "submit", class: "button primary" }, t("Save"));
    form.replaceChildren(...fields.map(labelled), h("div", { class: "row" }, cancel, save));
    const shown = preset ? values(preset) : {};
    for (const { name } of fields) field(name).value = String(shown[name] ?? "");
    form.hidden = false;
    add.hidden = true;
    field(fields[0].name).focus();
  };
  const field = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
  const close = () => {
    form.hidden = true;
    form.replaceChildren();
    add.hidden = false;
    add.focus();
  };
  add.onclick = () => open(null);
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.preventDefault(); // else the sheet closes, too
    close();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const entries = fields.map(({ name }) => [name, field(name).value.trim()]);
    const preset = /** @type {P} */ ({ id, ...read(Object.fromEntries(entries)) });
    presets.set(preset);
    close();
    announce(t("{name} is saved.", { name: preset.name }));
  });
  presets.onChange(draw);
  draw();
  return { open };
}

/** @param {Field} field */
function labelled({ name, label, kind, required = false, note, limits }) {
  const input =
    kind === "long"
      ? h("textarea", { name, rows: 4, required, dir: "auto" })
      : h("input", { name, type: kind, required, step: "any", ...limits });
  return h("label", { class: "field" }, label, input, note ? h("small", {}, note) : null);
}
