/** Why the browser's storage failed. Without a reason, a user frees space where a private window is the cause. */
import { t } from "../language/phrase.js";

const FULL = "QuotaExceededError";
const NEWER = "VersionError";
const DENIED = ["SecurityError", "NotAllowedError"]; // a private window, or storage is blocked for this site

/** Whether there was no space. @param {any} error */
export const isFull = (error) => error?.name === FULL;

/** What happened, and what to do. @param {any} error of IndexedDB @returns {import("../language/phrase.js").Phrase} */
export function whyNotStored(error) {
  if (isFull(error))
    return t("The storage of this browser is full. Free disk space, or remove models, documents or chats.");
  if (error?.name === NEWER)
    return t(
      "A newer Wisp has stored these data, and this one cannot read them. They are not lost: reload to get that one.",
    );
  if (DENIED.includes(error?.name) || !globalThis.indexedDB)
    return t("This browser lets this site store nothing. Allow it to store data, or leave the private window.");
  const why = [error?.name, error?.message].filter(Boolean).join(": ") || String(error);
  return t("The storage of this browser failed ({why}). Try again; if that does not help, restart the browser.", {
    why,
  });
}

/** An error with a code of docs/errors.md for a write that failed. @param {any} error of IndexedDB @returns {Error} */
export const notStored = (error) =>
  Object.assign(new Error(`${whyNotStored(error)}`), {
    ...(isFull(error) ? { code: "quota_exceeded" } : { code: "storage_failed" }),
    cause: error,
  });
