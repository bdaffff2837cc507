/** Opens the sheet of quality figures, which is loaded with its first use. */
import { t } from "../language/phrase.js";
import { byId } from "./dom.js";
import { notify } from "./notices.js";
import { applyStyle, importPart } from "./parts.js";

/**
 * @typedef {import("./engine.js").Choice} Choice
 * @typedef {object} Parts
 * @property {import("./engine.js").Engine} engine
 * @property {(choice: Choice) => Promise<import("./engine.js").Loaded>} beside loads a model to compare with
 * @property {() => Promise<Choice[]>} others models that can be loaded beside the one that answers
 */

/** @param {Parts} parts */
export function startQuality(parts) {
  /** @type {Promise<import("./quality/sheet.js").Sheet> | null} */
  let sheet = null;
  const load = async () => {
    const [{ Sheet }] = await Promise.all([importPart("quality"), applyStyle("qualityStyle")]);
    return new Sheet(parts);
  };
  byId("quality-button").onclick = async () => {
    sheet ??= load();
    try {
      (await sheet).open();
    } catch (error) {
      sheet = null;
      console.warn("The quality figures cannot be loaded:", error);
      const text = t("The quality figures cannot be loaded.");
      notify({ key: "quality", text, more: t("Check the connection and try again."), kind: "error" });
    }
  };
}
