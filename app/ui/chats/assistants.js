/** Assistants: presets of system prompt and sampling, chosen for a chat. */
import { t } from "../../language/phrase.js";
import { isObject } from "../../storage/local_json.js";
import { byId } from "../dom.js";
import { say } from "../texts.js";
import { openMenu } from "./menu.js";
import { Presets, startEditor } from "./presets.js";

/** @typedef {import("./database.js").Assistant} Assistant */

/** @type {import("./presets.js").Field[]} */
const FIELDS = [
  { name: "name", label: t("Name"), kind: "text", required: true },
  { name: "system", label: t("System prompt"), kind: "long", note: t("what it should know, and how it should answer") },
  {
    name: "temperature",
    label: t("Temperature"),
    kind: "number",
    limits: { min: 0, max: 2 },
    note: t("empty: as in Settings"),
  },
  { name: "top_p", label: t("Top-p"), kind: "number", limits: { min: 0, max: 1 } },
  { name: "top_k", label: t("Top-k"), kind: "number", limits: { min: 0, max: 1000, step: 1 } },
  { name: "min_p", label: t("Min-p"), kind: "number", limits: { min: 0, max: 1 } },
  { name: "max_tokens", label: t("Longest answer, in tokens"), kind: "number", limits: { min: 1, step: 1 } },
];

/**
 * @param {object} actions
 * @param {() => Assistant | undefined} actions.chosen for the shown chat
 * @param {(assistant: Assistant | undefined) => void} actions.choose
 */
export function startAssistants({ chosen, choose }) {
  /** @type {Presets<Assistant>} */
  const presets = new Presets("wisp.assistants", ({ settings }) => isObject(settings));
  const dialog = /** @type {HTMLDialogElement} */ (byId("presets-dialog"));
  const button = byId("assistant-button");
  startEditor(byId("assistants"), {
    presets,
    plural: t("assistants"),
    add: t("New assistant"),
    fields: FIELDS,
    read({ name, ...values }) {
      const settings = Object.entries(values).filter(([, value]) => value !== "");
      return {
        name,
        settings: Object.fromEntries(settings.map(([key, v]) => [key, key === "system" ? v : Number(v)])),
      };
    },
    values: ({ name, settings }) => ({ name, ...settings }),
  });
  const show = () => {
    say(byId("assistant-name"), chosen()?.name ?? t("No assistant"));
    button.classList.toggle("chosen", chosen() !== undefined);
  };
  button.onclick = () => {
    const current = chosen();
    const entry = (/** @type {Assistant} */ assistant) => ({
      label: assistant.name,
      icon: assistant.id === current?.id ? "check" : "person",
      run: () => choose(assistant),
    });
    openMenu(button, [
      ...(current ? [{ label: t("No assistant"), icon: "close", run: () => choose(undefined) }] : []),
      ...presets.all.map(entry),
      { label: t("Edit assistants and snippets"), icon: "edit", run: () => dialog.showModal() },
    ]);
  };
  presets.onChange(show);
  return {
    show,
    /** An assistant as it is now, or as it was when it was deleted. @param {Assistant} assistant */
    current: (assistant) => presets.all.find(({ id }) => id === assistant.id) ?? assistant,
  };
}
