/** The keyboard shortcuts: one table for event handlers, tooltips and the help sheet. */
import { joined, t } from "../language/phrase.js";
import { byId, h } from "./dom.js";
import { show } from "./texts.js";

/**
 * @typedef {import("./texts.js").Text} Text
 * @typedef {object} Shortcut
 * @property {string[]} keys alternatives: a KeyboardEvent.key each, after "Ctrl+" and "Shift+"; Ctrl is Command on a Mac
 * @property {Text} text
 */

/** @type {{ where: Text, shortcuts: Record<string, Shortcut> }[]} */
const GROUPS = [
  {
    where: t("Everywhere"),
    shortcuts: {
      help: { keys: ["?"], text: t("Keyboard shortcuts") },
      write: { keys: ["/"], text: t("Go to the message field") },
      newChat: { keys: ["Ctrl+Shift+O"], text: t("New chat") },
      search: { keys: ["Ctrl+K"], text: t("Search chats") },
      settings: { keys: ["Ctrl+,"], text: t("Open the settings") },
      stop: { keys: ["Escape"], text: t("Stop the answer") },
      close: { keys: ["Escape"], text: t("Close a dialog, a menu or the monitor") },
    },
  },
  {
    where: t("In the message field"),
    shortcuts: {
      send: { keys: ["Enter"], text: t("Send") },
      line: { keys: ["Shift+Enter"], text: t("Add a line") }, // handled by the browser
      snippet: { keys: ["/"], text: t("Insert a snippet") },
      blank: { keys: ["Tab"], text: t("Go to the next blank of a snippet") },
    },
  },
  {
    where: t("In lists and menus"),
    shortcuts: {
      step: { keys: ["ArrowDown", "ArrowUp"], text: t("Go to the next or previous entry") },
      ends: { keys: ["Home", "End"], text: t("Go to the first or last entry") },
    },
  },
  {
    where: t("In an answer's words"),
    shortcuts: {
      word: { keys: ["ArrowRight", "ArrowLeft"], text: t("Go to the next or previous word") },
      choose: { keys: ["Enter"], text: t("Choose another word") },
    },
  },
];
const SHORTCUTS = Object.assign({}, ...GROUPS.map(({ shortcuts }) => shortcuts));

const MAC = /^mac/i.test(navigator.platform);
/** @type {Record<string, Text>} */
const NAMES = {
  Ctrl: MAC ? "⌘" : t("Ctrl"),
  Shift: MAC ? "⇧" : t("Shift"),
  Enter: t("Enter"),
  Escape: t("Esc"),
  Tab: t("Tab"),
  Home: t("Home"),
  End: t("End"),
  ArrowDown: "↓",
  ArrowUp: "↑",
  ArrowRight: "→",
  ArrowLeft: "←",
};

/** The index of the shortcut's key that an event presses; -1: none. @param {string} name @param {KeyboardEvent} event */
export function keyOf(name, event) {
  return /** @type {Shortcut} */ (SHORTCUTS[name]).keys.findIndex((keys) => isPressed(keys, event));
}

/** @param {string} name @param {KeyboardEvent} event */
export const isKey = (name, event) => keyOf(name, event) >= 0;

/** @param {string} keys @param {KeyboardEvent} event */
function isPressed(keys, { key, ctrlKey, metaKey, shiftKey, altKey }) {
  const [last, ...modifiers] = keys.split("+").reverse();
  if (key.toLowerCase() !== last.toLowerCase() || altKey) return false;
  const shifts = modifiers.includes("Shift") === shiftKey || /^[?/,]$/.test(last); // some keyboards need Shift for these
  return modifiers.includes("Ctrl") === (ctrlKey || metaKey) && shifts;
}

/** @param {string} keys @returns {Text[]} */
const namesOf = (keys) => keys.split("+").map((name) => NAMES[name] ?? name);

/** Adds the keys of `data-shortcut` to the tooltips of the page's buttons, and fills the help sheet. */
export function startShortcuts() {
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll("[data-shortcut]"))) {
    const { keys, text } = /** @type {Shortcut} */ (SHORTCUTS[button.dataset.shortcut ?? ""]);
    show(button, "title", joined([text, joined(namesOf(keys[0]), "+")]));
    button.setAttribute("aria-keyshortcuts", keys[0].replace("Ctrl", MAC ? "Meta" : "Control"));
  }
  byId("help-list").replaceChildren(
    ...GROUPS.flatMap(({ where, shortcuts }) => [
      h("h3", {}, where),
      h("dl", { class: "shortcuts" }, ...Object.values(shortcuts).flatMap(row)),
    ]),
  );
}

/** @param {Shortcut} shortcut */
function row({ keys, text }) {
  const combinations = keys.map((one) => h("span", { dir: "ltr" }, ...namesOf(one).map((name) => h("kbd", {}, name))));
  return [h("dt", {}, ...combinations), h("dd", {}, text)];
}
