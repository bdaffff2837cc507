/** The model dialog: choose from the catalog, a local file (picked or dropped), or an address. */
import { joined, t } from "../language/phrase.js";
import { fileOf } from "../sdk/address.js";
import { completed, isAddress, nameOf, typedRepository } from "./address.js";
import { byId, h } from "./dom.js";
import { bytes, tokens } from "./format.js";
import { notify, tellUnusable } from "./notices.js";
import { sensesText, startProjector, withoutProjector } from "./media/projector.js";
import { say, translated } from "./texts.js";

/**
 * @typedef {import("./engine.js").Choice} Choice
 * @typedef {import("./engine.js").Loaded} Loaded
 * @typedef {import("./texts.js").Text} Text
 */

/**
 * @param {{ choose: (choice: Choice) => void, list: () => Promise<Record<string, any>[]>,
 *   opened: (loaded: Loaded | null, take: (choice: Choice) => void) => void, others: (files: File[]) => File[],
 *   repository: (id: string) => void }} actions
 *   `others` takes what is no model among dropped files, and returns the rest; `repository` shows one of the hub
 */
export function startModels({ choose, list, opened, others, repository }) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("model-dialog"));
  const input = /** @type {HTMLInputElement} */ (byId("file-input"));
  /** @type {Loaded | null} */
  let loaded = null;

  const take = (/** @type {Choice} */ choice) => {
    dialog.close();
    choose(choice);
  };
  const takeFiles = (/** @type {File[]} */ files) => {
    const choice = choiceOfFiles(files);
    if (choice) take(choice);
  };
  const projector = startProjector(take);
  /** Shows or hides the error that says what the field takes. @param {boolean} wrong */
  const markAddress = (wrong) => {
    byId("url-input").setAttribute("aria-invalid", String(wrong));
    byId("url-error").hidden = !wrong;
    const text = t("That is no address. Write one that ends in .gguf, or a repository of Hugging Face: OWNER/NAME.");
    if (wrong) say(byId("url-error"), text);
  };
  const open = async () => {
    markAddress(false);
    projector.show(loaded);
    dialog.showModal();
    byId("model-facts").replaceChildren(...facts(loaded));
    opened(loaded, take);
    const models = await list().catch(() => []);
    byId("model-list").replaceChildren(
      ...models.filter(({ size, variant }) => size && !variant).map((model) => modelItem(model, loaded, take)),
    );
  };
  byId("model-button").onclick = open;
  byId("open-file").onclick = () => input.click();
  input.addEventListener("change", () => {
    takeFiles([...(input.files ?? [])]);
    input.value = "";
  });
  byId("url-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const field = /** @type {HTMLInputElement} */ (byId("url-input"));
    const address = completed(field.value.trim());
    const id = typedRepository(address);
    markAddress(!id && !isAddress(address));
    if (id) return repository(id);
    if (!isAddress(address)) {
      field.focus();
      return byId("url-error").scrollIntoView({ block: "nearest" });
    }
    const url = fileOf(new URL(address, document.baseURI).href);
    take({ model: url, name: nameOf(url), keep: url });
  });
  startDrop(async (files) => takeFiles(await modelsAmong(others(files))));

  return {
    close: () => dialog.close(),
    /** Opens the dialog where a projector is added. */
    addProjector() {
      open();
      projector.focus();
    },
    /** @param {Loaded | null} now the current model */
    show(now) {
      loaded = now;
    },
  };
}

/** @param {File[]} files @returns {Choice | null} */
export function choiceOfFiles(files) {
  if (!files.length) return null;
  const { model, projector } = withoutProjector(files);
  const parts = model.toSorted((a, b) => a.name.localeCompare(b.name));
  return { model: parts.length > 1 ? parts : parts[0], name: nameOf(parts[0].name), projector };
}

/** The models among files, also those without an extension, such as Ollama's. Notifies the user of the others. @param {File[]} files */
async function modelsAmong(files) {
  const isModel = async (/** @type {File} */ file) =>
    /\.gguf$/i.test(file.name) ||
    (await file
      .slice(0, 4)
      .text()
      .catch(() => "")) === "GGUF";
  const found = await Promise.all(files.map(isModel));
  for (const { name } of files.filter((_, i) => !found[i])) tellUnusable(name);
  return files.filter((_, i) => found[i]);
}

/** @param {Record<string, any>} model @param {Loaded | null} loaded @param {(choice: Choice) => void} take */
function modelItem(model, loaded, take) {
  const current = (loaded?.choice.keep ?? loaded?.stats.model) === model.id;
  const name = model.name ?? model.id;
  const about = joined([bytes(model.size), model.license, current && t("in use")]);
  const button = h(
    "button",
    {
      type: "button",
      class: current ? "model current" : "model",
      "aria-current": current ? "true" : null,
      on: { click: () => take({ model: model.id, name, keep: model.id }) },
    },
    h("strong", {}, name),
    model.description ? h("span", { dir: "auto" }, translated(model.description)) : null,
    h("small", {}, about),
  );
  return h("li", {}, button);
}

/** Facts about the current model. @param {Loaded | null} loaded */
function facts(loaded) {
  if (!loaded) return [];
  const { stats } = loaded;
  const memory = Object.values(stats.memory ?? {}).filter((value) => typeof value === "number");
  const adapter = [stats.adapter?.description || stats.adapter?.vendor, stats.adapter?.architecture]
    .filter(Boolean)
    .join(", ");
  const gpu = `WebGPU${adapter && ` (${adapter})`}`;
  /** @type {[Text, Text | undefined | false][]} */
  const rows = [
    [t("Answering"), loaded.name],
    [
      t("Runs on"),
      loaded.choice.upstream ?? (stats.backend === "webgpu" ? gpu : t("the CPU, {n} threads", { n: stats.threads })),
    ],
    [t("Context"), stats.context_length && tokens(stats.context_length)],
    [t("Takes"), !loaded.choice.upstream && sensesText(loaded)],
    [t("Memory"), memory.length > 0 && bytes(memory.reduce((sum, value) => sum + value, 0))],
  ];
  return rows.flatMap(([term, value]) => (value ? [h("dt", {}, term), h("dd", {}, value)] : []));
}

/** @param {(files: File[]) => void} takeFiles */
function startDrop(takeFiles) {
  const veil = byId("drop");
  let depth = 0;
  const hasFiles = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files") ?? false;
  document.addEventListener("dragenter", (event) => {
    if (hasFiles(event) && depth++ === 0) veil.hidden = false;
  });
  document.addEventListener("dragleave", (event) => {
    if (hasFiles(event) && --depth <= 0) veil.hidden = true;
  });
  document.addEventListener("dragover", (event) => hasFiles(event) && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!hasFiles(event)) return;
    event.preventDefault();
    depth = 0;
    veil.hidden = true;
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length) return takeFiles(files);
    notify({ key: "drop", text: t("That was not a file."), more: t("Drop files from this computer."), kind: "error" });
  });
}
