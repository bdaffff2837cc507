/**
 * Snippets: texts that are inserted into the message field by "/" and their name. {{date}}, {{time}} and {{clipboard}} are
 * filled in; every other {{name}} is selected, one after the other with Tab, to be written over.
 */
import { date, t } from "../../language/phrase.js";
import { isText } from "../../storage/local_json.js";
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
  const presets = new Presets("wisp.snippets", ({ text }) => isText(text));
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
    const follow = followed(field, { start, end });
    const filled = await fill(text); // the browser may ask for the clipboard, which takes the focus
    if (document.activeElement === document.body) field.focus();
    const same = field.value === before && field.selectionStart === end && field.selectionEnd === end;
    const place = follow() ?? { start: field.selectionEnd, end: field.selectionEnd };
    field.setRangeText(filled, place.start, place.end, same ? "end" : "preserve");
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

/** @typedef {{ start: number, end: number }} Place in a text */

/**
 * Follows a place in a field's text while the user writes elsewhere in it.
 * @param {HTMLTextAreaElement} field @param {Place} from @returns {() => Place | null} ends it; null: the place was changed
 */
function followed(field, from) {
  /** @type {Place | null} */
  let place = from;
  let before = field.value;
  const look = () => {
    place = place && moved(place, before, field.value);
    before = field.value;
  };
  field.addEventListener("input", look);
  return () => {
    field.removeEventListener("input", look);
    look();
    return place;
  };
}

/** A place after one change of the text; null if the place itself was changed. @param {Place} place @param {string} before @param {string} now */
function moved(place, before, now) {
  const { start, end } = place;
  if (now.startsWith(before.slice(0, end))) return place;
  const by = now.length - before.length;
  return now.endsWith(before.slice(start)) ? { start: start + by, end: end + by } : null;
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
