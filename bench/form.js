/** The form of bench.html, and its fields in the address: /bench.html?backend=cpu&prompts=8,32 */
import { byId, h } from "../app/ui/dom.js";

const form = /** @type {HTMLFormElement} */ (byId("bench-form"));
const SECONDS_PER_ROW = 30; // on a slow device, a row has fewer runs

/** @param {string} name @returns {HTMLInputElement & HTMLSelectElement} */
const field = (name) => /** @type {any} */ (form.elements.namedItem(name));

/** Fills the fields from the address, and shows the fields that the selected model needs. */
export function startForm() {
  for (const [name, value] of new URLSearchParams(location.search)) {
    if (name === "model") chooseModel(value);
    else if (field(name) && /** @type {string} */ (field(name).type) !== "file") field(name).value = value;
  }
  const show = () => {
    byId("file-field").hidden = field("model").value !== "@file";
    byId("url-field").hidden = field("model").value !== "@url";
  };
  field("model").addEventListener("change", show);
  show();
  for (const input of form.querySelectorAll("input")) {
    input.addEventListener("input", () => input.removeAttribute("aria-invalid"));
  }
}

/** @param {string} value catalog id, address, or "@file" */
function chooseModel(value) {
  if (/\/|\.gguf$/i.test(value)) {
    field("model").value = "@url";
    field("url").value = value;
    return;
  }
  if (![...field("model").options].some((option) => option.value === value)) addModel(value, value);
  field("model").value = value;
}

/** @param {string} id @param {string} name */
function addModel(id, name) {
  const present = [...field("model").options].find((option) => option.value === id);
  if (present) present.textContent = name;
  else field("model").options[0].after(h("option", { value: id }, name));
}

/** @param {Record<string, any>[]} models of the catalog; the default one is listed already */
export function offer(models) {
  for (const model of models) if (model.size && !model.default) addModel(model.id, model.name ?? model.id);
}

/** The form's options; null if a field is invalid, which is then marked. @returns {import("./bench.js").Options | null} */
export function readForm() {
  const files = [...(field("file").files ?? [])].toSorted((a, b) => a.name.localeCompare(b.name));
  const chosen = field("model").value;
  const url = field("url").value.trim();
  const prompts = lengths("prompts");
  const contexts = lengths("contexts");
  const [runs, tokens, contextLength] = [whole("runs"), whole("tokens"), whole("contextLength")];
  const faults = [
    chosen === "@file" && !files.length && "file",
    chosen === "@url" && !url && "url",
    !prompts && "prompts",
    !contexts && "contexts",
    !(runs && runs > 0) && "runs",
    !(tokens && tokens > 1) && "tokens",
    contextLength === null && "contextLength",
  ].filter((name) => name !== false);
  for (const name of faults) field(name).setAttribute("aria-invalid", "true");
  if (faults.length) field(faults[0]).focus();
  if (faults.length || !prompts || !contexts || !runs || !tokens) return null;
  return {
    model: chosen === "@file" ? (files.length > 1 ? files : files[0]) : chosen === "@url" ? url : chosen || undefined,
    backend: field("backend").value,
    prompts,
    contexts,
    runs,
    tokens,
    contextLength: contextLength || undefined,
    text: field("text").files?.[0],
    threads: Number(new URLSearchParams(location.search).get("threads")) || undefined,
    profilePrompts: prompts.filter((n) => n > 1).slice(0, 2), // longer prompts consist of such batches
    secondsPerRow: SECONDS_PER_ROW,
  };
}

/** Positive whole numbers, separated by spaces, commas or semicolons; may be empty. @param {string} name @returns {number[] | null} */
function lengths(name) {
  const words = field(name)
    .value.split(/[\s,;]+/)
    .filter(Boolean);
  const numbers = words.map(Number);
  return numbers.every((n) => Number.isInteger(n) && n > 0) ? numbers : null;
}

/** A whole number, 0 for an empty field, null for anything else. @param {string} name @returns {number | null} */
function whole(name) {
  const number = Number(field(name).value.trim());
  return Number.isInteger(number) && number >= 0 && field(name).validity.valid ? number : null;
}

/** @param {boolean} busy */
export function lock(busy) {
  for (const element of form.querySelectorAll("input, select")) /** @type {any} */ (element).disabled = busy;
  byId("start").hidden = busy;
  byId("stop").hidden = !busy;
}
