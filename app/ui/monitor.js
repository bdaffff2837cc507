/** Opens the monitor, which is loaded with its first use, and notes what the engine does by itself until then. */
import { t } from "../language/phrase.js";
import { byId } from "./dom.js";
import { importPart, applyStyle } from "./parts.js";
import { show } from "./texts.js";

const MOST = 100; // reactions, the newest

/** @typedef {{ time: number, text: string }} Reaction */

/** @param {import("./engine.js").Engine} engine @returns {{ note: (text: string) => void }} */
export function startMonitor(engine) {
  const button = byId("monitor-button");
  /** @type {Reaction[]} */
  const reactions = [];
  /** @type {Promise<import("./monitor/panel.js").Panel> | null} */
  let panel = null;
  const load = async () => {
    const [{ Panel }] = await Promise.all([importPart("monitor"), applyStyle("monitorStyle")]);
    return new Panel({
      wisp: () => engine.wisp(),
      reactions,
      closed: () => (button.checkVisibility() ? button : byId("prompt")).focus(),
    });
  };
  button.onclick = async () => {
    panel ??= load();
    try {
      (await panel).toggle();
    } catch (error) {
      panel = null;
      console.warn("The monitor cannot be loaded:", error);
      show(button, "title", t("The monitor cannot be loaded. Check the connection and try again."));
    }
  };
  const note = (/** @type {string} */ text) => {
    reactions.push({ time: Date.now(), text });
    if (reactions.length > MOST) reactions.shift();
  };
  return { note };
}
