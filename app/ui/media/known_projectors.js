/** The projectors that models at addresses were loaded with, so that the next load of one finds its own. */
import { isText, storedObject } from "../../storage/local_json.js";

const STORED = "wisp.projectors"; // address of a model -> address of its projector

/** @param {string | string[] | undefined} model addresses, or an id of the catalog */
export function knownProjector(model) {
  const found = model === undefined ? undefined : storedObject(STORED)[String(model)];
  return isText(found) ? found : undefined;
}

/**
 * Remembers what a model was loaded with; nothing is known of files of this computer.
 * @param {string | string[] | undefined} model @param {unknown} projector
 */
export function rememberProjector(model, projector) {
  if (model === undefined || (projector !== undefined && typeof projector !== "string")) return;
  localStorage.setItem(STORED, JSON.stringify({ ...storedObject(STORED), [String(model)]: projector }));
}
