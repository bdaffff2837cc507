/**
 * The message that is being written, in this tab's sessionStorage: a reload, an update, a crash or a tab that the browser
 * has discarded would lose it. That of a private chat is never stored.
 */

const KEY = "wisp.unsent";

/** @param {string} text @param {boolean} isPrivate */
export function keepUnsent(text, isPrivate) {
  try {
    if (text && !isPrivate) sessionStorage.setItem(KEY, text);
    else sessionStorage.removeItem(KEY);
  } catch {
    // The text is longer than what may be stored.
  }
}

/** What was not sent when the page ended. */
export const unsent = () => sessionStorage.getItem(KEY) ?? "";
