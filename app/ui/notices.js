/** Notices above the composer, which may disappear after some seconds, and announcements for screen readers. */
import { t } from "../language/phrase.js";
import { byId, h, iconButton } from "./dom.js";
import { icon } from "./icons.js";

/**
 * @typedef {import("./texts.js").Text} Text
 *
 * @typedef {object} Notice
 * @property {string} key one notice per key; a new one replaces the old
 * @property {Text} text
 * @property {Text} [more] a second sentence: what to do
 * @property {"info" | "error"} [kind]
 * @property {{ label: Text, run: () => void }[]} [actions]
 * @property {number} [seconds] after which it disappears
 * @property {() => void} [onDismiss]
 */

/** @type {Map<string, HTMLElement>} */
const shown = new Map();

/** @param {Notice} notice */
export function notify({ key, text, more, kind = "info", actions = [], seconds, onDismiss }) {
  const held = [...(shown.get(key)?.querySelectorAll("button") ?? [])].findIndex((button) => button.matches(":focus"));
  dismiss(key);
  const buttons = actions.map(({ label, run }) => {
    const click = () => {
      dismiss(key);
      run();
    };
    return h("button", { type: "button", class: "text-button", on: { click } }, label);
  });
  const close = () => {
    dismiss(key);
    onDismiss?.();
    byId("prompt").focus();
  };
  const lines = { dir: "auto" }; // the engine's own texts are English
  const element = h(
    "div",
    { class: `notice ${kind}`, role: kind === "error" ? "alert" : "status", "data-key": key },
    icon(kind === "error" ? "warning" : "info"),
    h(
      "div",
      { class: "notice-text" },
      h("span", lines, text),
      more ? h("span", { class: "more", ...lines }, more) : null,
    ),
    buttons.length > 0 && h("div", { class: "notice-actions" }, ...buttons),
    iconButton("close", t("Dismiss"), close),
  );
  shown.set(key, element);
  byId("notices").append(element);
  element.querySelectorAll("button")[held]?.focus(); // such as Cancel, of a progress that goes on
  if (seconds) setTimeout(() => shown.get(key) === element && dismiss(key), seconds * 1000);
}

/** @param {string} key */
export function dismiss(key) {
  shown.get(key)?.remove();
  shown.delete(key);
}

/** Announces a text to screen readers without showing it. @param {Text} text */
export function announce(text) {
  const live = byId("live");
  live.textContent = "";
  setTimeout(() => (live.textContent = String(text)), 50);
}
