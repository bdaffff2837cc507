/** The model of the last visit, which the next one begins with. */
import { t } from "../language/phrase.js";
import { isText, storedObject } from "../storage/local_json.js";
import { nameOf } from "./address.js";
import { isRemembered, rememberedFiles } from "./handles.js";
import { notify } from "./notices.js";

/** @typedef {import("./engine.js").Choice} Choice */

const STORED_MODEL = "wisp.model";

/** @param {Choice} choice @param {string} name */
export function rememberModel({ keep, upstream }, name) {
  localStorage.setItem(STORED_MODEL, JSON.stringify({ keep, name, upstream }));
}

/**
 * Loads the model of the last visit, else the default. Files of this computer may need the user's permission, or be gone.
 * @param {(choice: Choice) => Promise<boolean>} load @param {Choice} fallback @returns {Promise<boolean>}
 */
export async function loadFirst(load, fallback) {
  const choice = lastModel() ?? fallback;
  const { keep, name } = choice;
  if (!isRemembered(keep)) return load(choice);
  const open = async (/** @type {boolean} */ ask) => {
    const model = await rememberedFiles(keep, ask).catch(() => undefined);
    if (model) return load({ ...choice, model });
    const actions = model === null ? [{ label: t("Open it"), run: () => void open(true) }] : [];
    const asks = t("The browser asks whether this page may read it.");
    const more = model === null ? asks : t("It was moved or deleted.");
    if (model === undefined) localStorage.removeItem(STORED_MODEL);
    notify({ key: "file", text: t("{name} is a file of this computer.", { name }), more, actions });
    return false;
  };
  return (await open(false)) || load(fallback);
}

/** @returns {Choice | null} */
function lastModel() {
  const { keep, name, upstream } = storedObject(STORED_MODEL);
  const isModel = isText(keep) || (Array.isArray(keep) && keep.length > 0 && keep.every(isText));
  return isModel ? { model: keep, name: isText(name) ? name : nameOf([keep].flat()[0]), keep, upstream } : null;
}
