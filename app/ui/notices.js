/**
 * Notices above the composer, which may disappear after some seconds, and announcements for screen readers. While a modal
 * dialog is open, all else of the page is inert: nothing there is read out or can be pressed, so they are in the dialog.
 */
import { t } from "../language/phrase.js";
import { byId, h, iconButton } from "./dom.js";
import { icon } from "./icons.js";
import { say } from "./texts.js";

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

const FIRST = /** @type {"button"} */ ("button, input"); // of a dialog
const MOST = 20; // at once, but for those with buttons: one for each of a hundred unreadable files would hide the page

/** @type {HTMLElement | null} what is read out; a dialog that it was in may be gone */
let live = null;
/** @type {Map<string, { element: HTMLElement, line: HTMLElement, notice: Notice }>} */
const shown = new Map();

/** @param {Notice} notice */
export function notify(notice) {
  const { key, text, more, kind = "info", actions = [], seconds } = notice;
  const before = shown.get(key);
  if (before && isProgress(before.notice, notice)) {
    before.notice = notice;
    if (modal() && !modal()?.contains(before.element)) placeOfNotices().append(before.element);
    return say(before.line, text);
  }
  dismiss(key);
  const lines = { dir: "auto" }; // the engine's own texts are English
  const line = h("span", lines, text);
  const made = { line, notice };
  const buttons = actions.map(({ label }, index) => {
    const click = () => {
      dismiss(key);
      made.notice.actions?.[index].run();
    };
    return h("button", { type: "button", class: "text-button", on: { click } }, label);
  });
  const close = () => {
    dismiss(key);
    made.notice.onDismiss?.();
    (modal()?.querySelector(FIRST) ?? byId("prompt")).focus();
  };
  const element = h(
    "div",
    { class: `notice ${kind}`, role: kind === "error" ? "alert" : "status", "data-key": key },
    icon(kind === "error" ? "warning" : "info"),
    h("div", { class: "notice-text" }, line, more ? h("span", { class: "more", ...lines }, more) : null),
    buttons.length > 0 && h("div", { class: "notice-actions" }, ...buttons),
    iconButton("close", t("Dismiss"), close),
  );
  shown.set(key, Object.assign(made, { element }));
  placeOfNotices().append(element);
  if (shown.size > MOST) dismissOldest(key);
  if (seconds) setTimeout(() => shown.get(key)?.element === element && dismiss(key), seconds * 1000);
}

/** Says that the page has no use for a file that was chosen, pasted or dropped. @param {string} name */
export function tellUnusable(name) {
  const more = t("It is no picture, video, sound, document or model that the page reads.");
  notify({ key: `medium ${name}`, text: t("{name} was not added.", { name }), more, kind: "error" });
}

/**
 * Says that something was deleted. For a few seconds that can be undone, also after something else was deleted.
 * @param {string} id @param {Text} text @param {Text} name @param {() => void} undo
 */
export const offerUndo = (id, text, name, undo) =>
  notify({ key: `deleted ${id}`, text, more: name, actions: [{ label: t("Undo"), run: undo }], seconds: 8 });

/**
 * Whether a notice only has another text than the one before it. Its buttons then stay: a press on one that is replaced
 * before its release is no click, and the focus would be lost.
 * @param {Notice} before @param {Notice} next
 */
function isProgress(before, next) {
  const isPlain = (/** @type {Notice} */ { kind = "info", more, seconds }) => kind === "info" && !more && !seconds;
  const labels = (/** @type {Notice} */ { actions = [] }) => actions.map(({ label }) => `${label}`).join("\n");
  return isPlain(before) && isPlain(next) && labels(before) === labels(next);
}

/** The modal dialog on top, if one is open. @returns {HTMLDialogElement | undefined} */
function modal() {
  const open = [.../** @type {NodeListOf<HTMLDialogElement>} */ (document.querySelectorAll("dialog:modal"))];
  return open.find((dialog) => dialog.contains(document.activeElement)) ?? open.at(-1);
}

/** @returns {Element} where notices can be read and pressed now */
function placeOfNotices() {
  const dialog = modal();
  return dialog ? noticesOf(dialog) : byId("notices");
}

/** The place of notices in a dialog; what is left there moves to the page's when it closes. @param {HTMLDialogElement} dialog */
function noticesOf(dialog) {
  const before = dialog.querySelector(":scope > .notices");
  if (before) return before;
  const place = h("div", { class: "notices" });
  dialog.append(place);
  const close = () => {
    byId("notices").append(...place.children);
    place.remove();
  };
  dialog.addEventListener("close", close, { once: true });
  return place;
}

/** Dismisses the oldest notice that asks for nothing, if there is one. @param {string} newest the key of one that stays */
function dismissOldest(newest) {
  const entries = [...shown].filter(([key, { notice }]) => key !== newest && !notice.actions?.length);
  if (entries.length) dismiss(entries[0][0]);
}

/** @param {string} key */
export function dismiss(key) {
  shown.get(key)?.element.remove();
  shown.delete(key);
}

/** Announces a text to screen readers without showing it. @param {Text} text */
export function announce(text) {
  live ??= byId("live");
  const place = modal() ?? document.body;
  if (live.parentElement !== place) place.append(live);
  live.textContent = "";
  const shown = live;
  setTimeout(() => (shown.textContent = String(text)), 50);
}
