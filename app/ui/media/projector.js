/** The part of the model dialog that gives the model a projector, so that it sees or hears. */
import { listed, t } from "../../language/phrase.js";
import { isProjector } from "../../hub/files.js";
import { sensesOf } from "../chats/media_parts.js";
import { byId } from "../dom.js";
import { addressField } from "../address_field.js";
import { say } from "../texts.js";

/**
 * @typedef {import("../engine.js").Loaded} Loaded
 * @typedef {import("../engine.js").Choice} Choice
 */

/** What a model takes, for the user. @param {Loaded} loaded */
export function sensesText(loaded) {
  const { image, audio } = sensesOf(loaded);
  return listed([t("text"), ...(image ? [t("pictures")] : []), ...(audio ? [t("sound")] : [])]);
}

/**
 * Divides chosen files into those of a model and its projector.
 * @param {File[]} files @returns {{ model: File[], projector: File | undefined }}
 */
export function withoutProjector(files) {
  const projector = files.length > 1 ? files.find(({ name }) => isProjector(name)) : undefined;
  return { model: files.filter((file) => file !== projector), projector };
}

/** @param {(choice: Choice) => void} choose loads a model */
export function startProjector(choose) {
  const section = byId("projector");
  const field = addressField("projector-url");
  const file = /** @type {HTMLInputElement} */ (byId("projector-file"));
  /** @type {Loaded | null} */
  let loaded = null;

  const use = (/** @type {File | string} */ projector) => loaded && choose({ ...loaded.choice, projector });
  byId("projector-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const address = field.read();
    if (address !== null) use(address);
  });
  byId("projector-open").onclick = () => file.click();
  file.addEventListener("change", () => {
    const [chosen] = file.files ?? [];
    file.value = "";
    if (chosen) use(chosen);
  });

  return {
    /** @param {Loaded | null} now the current model */
    show(now) {
      loaded = now;
      field.clear();
      section.hidden = !now || now.choice.upstream !== undefined;
      if (!now) return;
      const { image, audio } = sensesOf(now);
      const none = t("{name} reads text alone. A model that was trained for more has a projector, a second file.", {
        name: now.name,
      });
      const some = t("{name} takes {what}.", { name: now.name, what: sensesText(now) });
      say(byId("projector-state"), image || audio ? some : none);
    },
    focus: field.focus,
  };
}
