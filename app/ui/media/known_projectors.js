/** The projectors that models at addresses were loaded with, so that the next load of one finds its own. */

const STORED = "wisp.projectors";

/** @returns {Record<string, string>} address of a model -> address of its projector */
function stored() {
  try {
    return JSON.parse(localStorage.getItem(STORED) ?? "{}");
  } catch {
    return {};
  }
}

/** @param {string | string[] | undefined} model addresses, or an id of the catalog */
export function knownProjector(model) {
  return model === undefined ? undefined : stored()[String(model)];
}

/**
 * Remembers what a model was loaded with; nothing is known of files of this computer.
 * @param {string | string[] | undefined} model @param {unknown} projector
 */
export function rememberProjector(model, projector) {
  if (model === undefined || (projector !== undefined && typeof projector !== "string")) return;
  localStorage.setItem(STORED, JSON.stringify({ ...stored(), [String(model)]: projector }));
}
