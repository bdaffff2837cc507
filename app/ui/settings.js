/** The user's settings: stored in localStorage, edited in the settings sheet, turned into request fields. */
import { byId } from "./dom.js";

/**
 * @typedef {object} Settings empty numbers are null
 * @property {string} system
 * @property {number} temperature
 * @property {number | null} top_p
 * @property {number | null} top_k
 * @property {number | null} min_p
 * @property {number | null} seed
 * @property {number | null} max_tokens
 * @property {number | null} context_length
 */

/** @type {Settings} */
const DEFAULTS = {
  system: "",
  temperature: 0.4,
  top_p: 0.95,
  top_k: 40,
  min_p: 0.05,
  seed: null,
  max_tokens: null,
  context_length: null,
};

const KEY = "wisp.settings";
const NUMBERS = /** @type {const} */ ([
  "temperature",
  "top_p",
  "top_k",
  "min_p",
  "seed",
  "max_tokens",
  "context_length",
]);

/** @returns {Settings} */
export function readSettings() {
  try {
    return { ...DEFAULTS, ...JSON.parse(localStorage.getItem(KEY) ?? "{}") };
  } catch {
    return { ...DEFAULTS };
  }
}

/**
 * The settings of a chat's requests: those of all chats, of the model, of the assistant, of the chat; the last one wins.
 * @param {import("./chats/database.js").ChatInfo} chat @param {import("./engine.js").Loaded | null} loaded
 * @returns {Settings}
 */
export function effectiveSettings({ settings }, loaded) {
  return { ...readSettings(), ...settings };
}

/**
 * The sampling fields of a request. For another server only changed ones, because not all servers know all of them.
 * @param {Settings} settings @param {boolean} [away]
 */
export function samplingFields({ system, context_length, ...fields }, away = false) {
  const wanted = Object.entries(fields).filter(
    ([name, value]) => value !== null && !(away && value === DEFAULTS[/** @type {keyof Settings} */ (name)]),
  );
  return Object.fromEntries(wanted);
}

/** @param {{ onContextLength: () => void }} events called when a changed context length needs the model loaded again */
export function startSettings({ onContextLength }) {
  const dialog = byId("settings-dialog");
  const form = /** @type {HTMLFormElement} */ (byId("settings-form"));
  const input = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
  let contextWhenOpened = readSettings().context_length;

  const show = (/** @type {Settings} */ settings) => {
    input("system").value = settings.system;
    for (const name of NUMBERS) input(name).value = settings[name] === null ? "" : String(settings[name]);
    input("temperature_shown").value = settings.temperature.toFixed(2);
  };
  const keep = () => {
    const settings = { ...DEFAULTS, system: input("system").value };
    for (const name of NUMBERS) {
      const field = input(name);
      const good = field.value !== "" && field.validity.valid;
      field.setAttribute("aria-invalid", String(!field.validity.valid));
      Object.assign(settings, {
        [name]: good ? Number(field.value) : field.value === "" ? emptied(name) : DEFAULTS[name],
      });
    }
    input("temperature_shown").value = settings.temperature.toFixed(2);
    localStorage.setItem(KEY, JSON.stringify(settings));
  };
  form.addEventListener("input", keep);
  byId("settings-reset").onclick = () => {
    show(DEFAULTS);
    keep();
  };
  byId("settings-button").onclick = () => {
    contextWhenOpened = readSettings().context_length;
    show(readSettings());
    /** @type {HTMLDialogElement} */ (dialog).showModal();
  };
  dialog.addEventListener("close", () => {
    if (readSettings().context_length !== contextWhenOpened) onContextLength();
  });
}

/** @param {keyof Settings} name its value when the field is empty: off, or the default if it has no off */
function emptied(name) {
  return name === "temperature" ? DEFAULTS.temperature : null;
}
