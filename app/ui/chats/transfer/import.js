/** The page's end of an import of chats; a worker reads and stores them. */
import { language, t } from "../../../language/phrase.js";
import { byId } from "../../dom.js";
import { dismiss, notify } from "../../notices.js";

/** Imports a file, and says how far it is and how it ended. @param {File} file @returns {Promise<boolean>} false: it was cancelled */
export async function importFile(file) {
  const worker = new Worker(new URL(byId("import-input").dataset.worker ?? "", document.baseURI), { type: "module" });
  const { promise, resolve, reject } = /** @type {PromiseWithResolvers<{ added: number, skipped: number } | null>} */ (
    Promise.withResolvers()
  );
  const tell = (/** @type {import("../../texts.js").Text} */ text) =>
    notify({ key: "transfer", text, actions: [{ label: t("Cancel"), run: () => resolve(null) }] });
  worker.onmessage = ({ data: { progress, error, ...result } }) => {
    if (progress) tell(t("Importing chats: {done} of {total}", progress));
    else if (error) reject(new Error(error));
    else resolve(result);
  };
  worker.onerror = ({ message }) => reject(new Error(message));
  tell(t("Reading {name} …", { name: file.name }));
  worker.postMessage({ file, language: language() });
  try {
    const result = await promise;
    if (!result) return false;
    const more = result.skipped ? t("{n} chats were empty or there already.", { n: result.skipped }) : "";
    notify({ key: "imported", text: t("{n} chats imported.", { n: result.added }), more, seconds: 10 });
    return true;
  } finally {
    worker.terminate(); // which ends what it has not stored
    dismiss("transfer");
  }
}
