/**
 * The user's settings, edited in the settings sheet and turned into request fields. They are stored for all chats
 * (localStorage), for a model (localStorage) and for a chat (in its entry); the narrower wins.
 */
import { number, t } from "../language/phrase.js";
import { isObject, storedObject } from "../storage/local_json.js";
import { byId } from "./dom.js";
import { say } from "./texts.js";

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
 *
 * @typedef {"all" | "model" | "chat"} Scope
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
const MODELS_KEY = "wisp.settings.models"; // model's name -> its settings
const NAMES = /** @type {(keyof Settings)[]} */ (Object.keys(DEFAULTS));

/** The settings of all chats. @returns {Settings} */
export function readSettings() {
  return { ...DEFAULTS, ...valid(storedObject(KEY)) };
}

/** What is set for one model. @param {string | undefined} name @returns {Partial<Settings>} */
function modelSettings(name) {
  return valid(name ? storedObject(MODELS_KEY)[name] : undefined);
}

/**
 * The settings of a chat's requests: those of all chats, of the model, of the assistant, of the chat; the last one wins.
 * @param {import("./chats/database.js").ChatInfo} chat @param {string} [model] its name @returns {Settings}
 */
export function effectiveSettings({ settings, assistant }, model) {
  return { ...readSettings(), ...modelSettings(model), ...valid(assistant?.settings), ...valid(settings) };
}

/**
 * Settings without what is none: a file of another program, or another version of the page, may have it, and it would
 * become a field of requests.
 * @param {unknown} settings @returns {Partial<Settings>}
 */
function valid(settings) {
  const isValid = (/** @type {[string, unknown]} */ [name, value]) => {
    if (!Object.hasOwn(DEFAULTS, name)) return false;
    if (name === "system") return typeof value === "string";
    return Number.isFinite(value) || (value === null && name !== "temperature");
  };
  return Object.fromEntries(Object.entries(isObject(settings) ? settings : {}).filter(isValid));
}

/** The context length that a model is to be loaded with. @param {string} model its name */
export function contextLengthFor(model) {
  return { ...readSettings(), ...modelSettings(model) }.context_length ?? undefined;
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

/**
 * @typedef {object} Parts
 * @property {() => import("./chats/database.js").ChatInfo} chat the shown one
 * @property {(settings: Partial<Settings>) => void} changeChat sets the shown chat's settings
 * @property {() => string | undefined} model the name of the one that answers
 * @property {() => void} closed called when the sheet was closed
 *
 * @param {Parts} parts
 */
export function startSettings({ chat, changeChat, model, closed }) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("settings-dialog"));
  const form = /** @type {HTMLFormElement} */ (byId("settings-form"));
  const input = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));

  const scope = () => /** @type {Scope} */ (input("scope").value);
  const layer = () =>
    scope() === "all" ? storedObject(KEY) : scope() === "model" ? modelSettings(model()) : (chat().settings ?? {});
  const write = (/** @type {Partial<Settings>} */ settings) => {
    if (scope() === "all") localStorage.setItem(KEY, JSON.stringify(settings));
    if (scope() === "chat") changeChat(settings);
    const name = model();
    if (scope() !== "model" || !name) return;
    const { [name]: _, ...others } = storedObject(MODELS_KEY);
    const models = Object.keys(settings).length ? { ...others, [name]: settings } : others;
    localStorage.setItem(MODELS_KEY, JSON.stringify(models));
  };
  /** What the scope has: its own settings, else those of the wider scopes. @returns {Settings} */
  const settings = () => {
    if (scope() === "all") return readSettings();
    return scope() === "model" ? { ...readSettings(), ...modelSettings(model()) } : effectiveSettings(chat(), model());
  };

  const show = () => {
    const values = settings();
    const own = layer();
    for (const name of NAMES) {
      const value = values[name];
      input(name).value = value === null ? "" : String(value);
      input(name).removeAttribute("aria-invalid");
      input(name)
        .closest(".field")
        ?.classList.toggle("set-here", scope() !== "all" && name in own);
    }
    showTemperature(values.temperature);
    byId("context-field").hidden = scope() === "chat"; // a model has one context for all chats
    say(byId("settings-reset"), scope() === "all" ? t("Reset to defaults") : t("Use the settings of all chats"));
    const texts = {
      all: t("Where a model or a chat has settings of its own, those win."),
      model: t("For every chat with {model}. Marked ones differ from the settings of all chats.", {
        model: model() ?? t("this model"),
      }),
      chat: t("For this chat alone. Marked ones differ from the settings of all chats."),
    };
    say(byId("settings-for"), texts[scope()]);
  };
  const showTemperature = (/** @type {number} */ value) =>
    say(input("temperature_shown"), number(value, { minimumFractionDigits: 2 }));
  const change = (/** @type {Event} */ event) => {
    const field = /** @type {HTMLInputElement} */ (event.target);
    if (field.name === "scope") return show();
    const name = /** @type {keyof Settings} */ (field.name);
    field.setAttribute("aria-invalid", String(!field.validity.valid));
    const empty = name === "temperature" ? DEFAULTS.temperature : null;
    const number = field.value === "" ? empty : field.validity.valid ? Number(field.value) : DEFAULTS[name];
    const value = name === "system" ? field.value : number;
    write({ ...layer(), [name]: value });
    field.closest(".field")?.classList.toggle("set-here", scope() !== "all");
    if (name === "temperature") showTemperature(Number(value));
  };
  form.addEventListener("input", change);
  byId("settings-reset").onclick = () => {
    write({});
    show();
  };
  byId("settings-button").onclick = () => {
    input("scope").value = "all";
    show();
    dialog.showModal();
  };
  dialog.addEventListener("close", closed);
}
