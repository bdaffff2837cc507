/** The writes of chats, one after another: IndexedDB would run them in order, but a failed one must be known to the next. */
import { t } from "../../language/phrase.js";
import { whyNotStored } from "../../storage/failures.js";
import { isLeft } from "../leaving.js";
import { dismiss, notify } from "../notices.js";
import { forgetWritten } from "./closing.js";
import { unstored } from "./unstored.js";

/** @typedef {(rest: import("./closing.js").Rest) => void} Tell adds what a write stores to what is left if the page closes before */

/** @type {Promise<unknown>} */
let last = Promise.resolve();
/** @type {Set<Tell>} in order */
const pending = new Set();

export const writes = {
  /** Is called when one has succeeded: what was not stored before is tried again. */
  succeeded: () => {},

  /** Runs a write after those before it. The promise does not reject. @param {() => Promise<unknown>} write @param {Tell} tell */
  enqueue(write, tell) {
    pending.add(tell);
    return (last = last
      .then(write)
      .finally(() => pending.delete(tell))
      .then(succeed, fail));
  },

  /** Resolves when those that are queued now are done. */
  done: () => last,

  /** @type {Tell} */
  tell: (rest) => pending.forEach((tell) => tell(rest)),
};

function succeed() {
  dismiss("storage");
  writes.succeeded();
  if (!pending.size && !isLeft()) forgetWritten(unstored);
}

/** @param {unknown} error */
function fail(error) {
  const text = t("This browser could not store the chat.");
  notify({ key: "storage", text, more: whyNotStored(error), kind: "error" });
}
