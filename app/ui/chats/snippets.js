/**
 * Snippets: texts that are inserted into the message field by "/" and their name. {{date}}, {{time}} and {{clipboard}} are
 * filled in; every other {{name}} is selected, one after the other with Tab, to be written over.
 */
import { date, t } from "../../language/phrase.js";
import { byId, h } from "../dom.js";
import { clock } from "../format.js";
import { announce } from "../notices.js";
import { isKey, keyOf } from "../shortcuts.js";
import { Presets, startEditor } from "./presets.js";

/** @typedef {import("./presets.js").Preset & { text: string }} Snippet */

const COMMAND = /(?:^|\s)\/([\p{L}\p{N}_-]*)$/u;
const VARIABLE = /\{\{\s*[\p{L}\p{N}_ -]+?\s*\}\}/u;
const MOST = 8; // in the list

export function startSnippets() {
  /** @type {Presets<Snippet>} */
  const presets = new Presets("wisp.snippets");
  const editor = startEditor(byId("snippets"), {
    presets,
    plural: t("snippets"),
    add: t("New snippet"),
    fields: [
      { name: "name", label: t("Name"), kind: "text", required: true, note: t("one word; typed after /") },
      {
        name: "text",
        label: t("Text|of a snippet"),
        kind: "long",
        required: true,
        note: t("{{date}}, {{time}} and {{clipboard}} are filled in; Tab goes to every other {{name}}"),
      },
    ],
    read: ({ name, text }) => ({ name: name.replace(/\s+/g, "-").replace(/^\//, ""), text }),
    values: ({ name, text }) => ({ name, text }),
  });
  const field = /** @type {HTMLTextAreaElement} */ (byId("prompt"));
  const list = byId("snippet-list");
  /** @type {Snippet[]} */
  let shown = [];
  let at = 0;
  let inserted = false; // the text has variables that Tab goes to

  const close = () => {
    shown = [];
    list.hidden = true;
    field.removeAttribute("aria-activedescendant");
  };
  const draw = () => {
    list.replaceChildren(
      ...shown.map(({ name, text }, index) => {
        const on = { pointerdown: (/** @type {Event} */ event) => (event.preventDefault(), void insert(index)) };
        const props = {
          role: "option",
          id: `snippet-${index}`,
          "aria-selected": index === at,
          class: "menu-entry",
          on,
        };
        return h("li", props, h("strong", {}, `/${name}`), h("span", { dir: "auto" }, text));
      }),
    );
    list.hidden = false;
    field.setAttribute("aria-activedescendant", `snippet-${at}`);
  };
  const look = () => {
    const typed = COMMAND.exec(field.value.slice(0, field.selectionStart));
    if (!typed || field.selectionStart !== field.selectionEnd) return close();
    const name = typed[1].toLowerCase();
    shown = presets.all.filter((snippet) => snippet.name.toLowerCase().startsWith(name)).slice(0, MOST);
    if (!shown.length) return close();
    at = 0;
    draw();
  };
  const insert = async (/** @type {number} */ index) => {
    const { text } = shown[index];
    close();
    const end = field.selectionStart;
    const command = /** @type {RegExpExecArray} */ (COMMAND.exec(field.value.slice(0, end)));
    const start = end - command[1].length - 1;
    const before = field.value;
    const typed = before.slice(start, end);
    const filled = await fill(text); // the browser may ask for the clipboard, which takes the focus
    if (document.activeElement === document.body) field.focus();
    const same = field.value === before && field.selectionStart === end && field.selectionEnd === end;
    const at = same ? start : field.value.indexOf(typed); // what the user wrote meanwhile may have moved it
    const [from, to] = at < 0 ? [field.selectionEnd, field.selectionEnd] : [at, at + typed.length];
    field.setRangeText(filled, from, to, same ? "end" : "preserve");
    field.dispatchEvent(new Event("input"));
    inserted = same && select(start);
  };
  /** Selects the next variable from a position on. @param {number} from */
  const select = (from) => {
    const found = VARIABLE.exec(field.value.slice(from)) ?? VARIABLE.exec(field.value);
    if (!found) return false;
    const start = found.input === field.value ? found.index : from + found.index;
    field.setSelectionRange(start, start + found[0].length);
    announce(t("Write {what}.", { what: found[0].replace(/[{}]/g, "").trim() }));
    return true;
  };

  field.addEventListener("input", look);
  field.addEventListener("blur", close);
  // Before the field's own keys: Enter sends there.
  const onKey = (/** @type {KeyboardEvent} */ event) => {
    if (isKey("blank", event) && inserted && !shown.length) {
      inserted = select(field.selectionEnd);
      if (inserted) event.preventDefault();
      return;
    }
    if (!shown.length || event.isComposing) return;
    const step = [1, -1][keyOf("step", event)];
    if (step) at = (at + shown.length + step) % shown.length;
    else if (isKey("close", event)) close();
    else if (isKey("send", event) || isKey("blank", event)) void insert(at);
    else return;
    if (shown.length) draw();
    event.preventDefault();
    event.stopImmediatePropagation();
  };
  field.addEventListener("keydown", onKey, { capture: true });
  return { editor };
}

/** @param {string} text */
async function fill(text) {
  const now = Date.now();
  const clipboard = /\{\{\s*clipboard\s*\}\}/.test(text) ? await readClipboard() : "";
  return text
    .replace(/\{\{\s*date\s*\}\}/g, String(date(now)))
    .replace(/\{\{\s*time\s*\}\}/g, String(clock(now)))
    .replace(/\{\{\s*clipboard\s*\}\}/g, () => clipboard);
}

async function readClipboard() {
  try {
    return await navigator.clipboard.readText();
  } catch {
    announce(t("The browser did not allow reading the clipboard."));
    return "";
  }
}
