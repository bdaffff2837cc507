/** The page's end of an import of chats; a worker reads and stores them. */
import { language, t } from "../../../language/phrase.js";
import { withSpace } from "../../../storage/space.js";
import { byId } from "../../dom.js";
import { dismiss, notify } from "../../notices.js";

/** @typedef {{ added: number, skipped: number } | "cancelled"} Result */

let imports = 0; // of this visit

/**
 * Imports a file, and says how far it is and how it ended.
 * @param {File} file @returns {Promise<"done" | "cancelled">} "cancelled": no more files, though it may have been too late
 */
export async function importFile(file) {
  const key = `import ${++imports}`;
  let isCancelled = false;
  /** @type {Worker | undefined} */
  let worker;
  const cancel = () => {
    isCancelled = true;
    worker?.postMessage({ cancel: true }); // it answers what became of it
  };
  const tell = (/** @type {import("../../texts.js").Text} */ text) =>
    isCancelled || notify({ key, text, actions: [{ label: t("Cancel"), run: cancel }] });
  tell(t("Reading {name} …", { name: file.name }));
  const attempt = () => {
    worker = startWorker();
    return isCancelled ? /** @type {const} */ ("cancelled") : resultOf(worker, file, tell);
  };
  try {
    const result = await withSpace(async () => attempt());
    if (result === "cancelled") return result;
    const more = result.skipped ? t("{n} chats were empty or there already.", { n: result.skipped }) : "";
    notify({ key: "imported", text: t("{n} chats imported.", { n: result.added }), more, seconds: 10 });
    return isCancelled ? "cancelled" : "done";
  } finally {
    dismiss(key);
  }
}

const startWorker = () =>
  new Worker(new URL(byId("import-input").dataset.worker ?? "", document.baseURI), { type: "module" });

/**
 * Has a worker import a file.
 * @param {Worker} worker @param {File} file @param {(text: import("../../texts.js").Text) => void} tell @returns {Promise<Result>}
 */
function resultOf(worker, file, tell) {
  const { promise, resolve, reject } = /** @type {PromiseWithResolvers<Result>} */ (Promise.withResolvers());
  worker.onmessage = ({ data: { progress, error, name, result } }) => {
    if (progress) tell(t("Importing chats: {done} of {total}", progress));
    else if (error) reject(Object.assign(new Error(error), { name }));
    else resolve(result);
  };
  worker.onerror = () => reject(new Error(`${t("The import stopped. Try again.")}`)); // perhaps it cannot be loaded
  worker.postMessage({ file, language: language() });
  return promise.finally(() => worker.terminate());
}
