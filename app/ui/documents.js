/** The documents dialog: add and remove documents, choose how they are searched, and whether questions use them. */
import { joined, listed, sentences, t } from "../language/phrase.js";
import { isDocument } from "../retrieval/read.js";
import { adviceFor, explain } from "./advice.js";
import { askDocuments } from "./ask.js";
import { byId, h, iconButton } from "./dom.js";
import { bytes } from "./format.js";
import { LongList } from "./long_list.js";
import { Library } from "../retrieval/library.js";
import { nameOf } from "./address.js";
import { addressField } from "./address_field.js";
import { announce, notify } from "./notices.js";
import { say, show } from "./texts.js";

const MOST_ERRORS = 20; // of files chosen at once
const STORED = "wisp.ask"; // "off": questions do not use the documents

/** @typedef {import("./engine.js").Engine} Engine */

/** @param {Engine} engine */
export function startDocuments(engine) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("documents-dialog"));
  const input = /** @type {HTMLInputElement} */ (byId("documents-input"));
  const modelInput = /** @type {HTMLInputElement} */ (byId("embedder-file"));
  const toggle = byId("ask-documents");
  const error = byId("embedder-error");
  const field = addressField("embedder-url");
  const list = new LongList(byId("document-list"));
  const library = new Library({ wisp: () => engine.wisp(), pdf: () => pdfReader(dialog), changed: () => draw() });

  const asked = () => library.documents.length > 0 && localStorage.getItem(STORED) !== "off";
  /** @type {WeakMap<import("../retrieval/library.js").Job, { number: number, element: HTMLElement }>} */
  const rows = new WeakMap();
  let made = 0;
  /**
   * The row of a file that waits or is read. It stays while its state changes: a click needs a button that stays.
   * @param {import("../retrieval/library.js").Job} job
   */
  const itemOf = (job) => {
    const row = rows.get(job) ?? { number: made++, element: jobItem(job, () => cancel([job])) };
    rows.set(job, row);
    say(/** @type {HTMLElement} */ (row.element.querySelector("small")), job.state);
    return { key: job.id, state: `job ${row.number}`, draw: () => row.element };
  };
  const draw = () => {
    const { documents, embedder } = library;
    const jobs = [...library.jobs];
    const files = jobs.filter(({ file }) => file);
    const embedding = jobs.find(({ file }) => !file);
    const running = new Map(files.map((job) => [job.id, job]));
    const stored = documents.map((document) => {
      const { id, name, size, pages, passages } = document;
      const job = running.get(id);
      if (job) return itemOf(job);
      const draw = () => documentItem(document, () => remove(document));
      return { key: id, state: [name, size, pages, passages], draw };
    });
    const ids = new Set(documents.map(({ id }) => id));
    list.show([...stored, ...files.filter(({ id }) => !ids.has(id)).map(itemOf)]);
    byId("documents-cancel").hidden = files.length < 2;
    byId("embedder-cancel").hidden = !embedding;
    byId("documents-count").textContent = documents.length ? String(documents.length) : "";
    toggle.hidden = !documents.length;
    toggle.setAttribute("aria-pressed", String(asked()));
    const upstream = engine.loaded?.choice.upstream;
    const n = documents.length;
    show(byId("documents-button"), "aria-label", joined([t("Documents"), n > 0 && n], " "));
    const label = !asked()
      ? t("Answer from {n} documents", { n })
      : upstream
        ? t("Answers come from {n} documents, whose passages go to {server}", { n, server: upstream })
        : t("Answers come from {n} documents", { n });
    for (const name of ["title", "aria-label"]) show(toggle, name, label);
    toggle.classList.toggle("away", upstream !== undefined);
    show(byId("prompt"), "placeholder", asked() ? t("Ask your documents") : t("Write a message"));
    const loading = embedding?.state;
    const how = embedder.chosen
      ? t("By meaning, with {name}, and by words.", { name: embedder.chosen.name })
      : t("By words alone. An embedding model finds what is said in other words, too.");
    say(byId("search-how"), loading ?? how);
    if (library.trouble && !loading) {
      say(error, sentences(t("Searched by words alone."), library.trouble));
      error.hidden = false;
    }
    byId("embedder-form").hidden = embedder.chosen !== null || loading !== undefined;
    byId("embedder-forget").hidden = !embedder.chosen || loading !== undefined;
    byId("documents-away").hidden = !upstream;
    if (upstream)
      say(
        byId("documents-away"),
        t("{server} answers now: the passages found for a question leave this computer with it.", { server: upstream }),
      );
  };

  const remove = async (/** @type {import("../retrieval/database.js").Document} */ document) => {
    await library.remove(document.id);
    announce(t("{name} is removed.", { name: document.name }));
    byId("documents-choose").focus();
  };
  /** Ends what waits or runs, and announces the names of files. @param {import("../retrieval/library.js").Job[]} jobs */
  const cancel = (jobs) => {
    for (const job of jobs) library.cancel(job);
    const names = jobs.flatMap(({ file }) => file?.name ?? []);
    if (names.length) announce(t("Cancelled: {names}.", { names: listed(names) }));
  };
  const add = async (/** @type {File[]} */ files) => {
    for (const file of files) {
      library.add(file).then(
        () => announce(t("{name} is ready.", { name: file.name })),
        (failure) => {
          if (failure?.name === "AbortError") return;
          const { code, message } = explain(failure);
          const text = t("{name} was not read.", { name: file.name });
          notify({ key: `document ${file.name}`, text, more: sentences(message, adviceFor(code)), kind: "error" });
          if (dialog.open && errors.childElementCount < MOST_ERRORS)
            errors.append(h("p", { class: "form-error", role: "alert" }, sentences(text, message)));
        },
      );
    }
  };
  const errors = byId("document-errors");
  const useModel = async (/** @type {import("../retrieval/embedder.js").Chosen | null} */ chosen) => {
    field.clear();
    error.hidden = true;
    try {
      await library.choose(chosen);
    } catch (/** @type {any} */ failure) {
      if (failure?.name === "AbortError") return;
      const text = t("{name} is not used.", { name: chosen?.name ?? "" });
      say(error, sentences(text, explain(failure).message));
      error.hidden = false;
    }
  };

  byId("documents-button").onclick = () => {
    errors.replaceChildren();
    field.clear();
    draw();
    dialog.showModal();
  };
  byId("documents-choose").onclick = () => input.click();
  byId("documents-cancel").onclick = () => {
    cancel([...library.jobs].filter(({ file }) => file));
    byId("documents-choose").focus();
  };
  byId("embedder-cancel").onclick = () => cancel([...library.jobs].filter(({ file }) => !file));
  input.addEventListener("change", () => {
    errors.replaceChildren();
    add([...(input.files ?? [])]);
    input.value = "";
  });
  toggle.onclick = () => {
    localStorage.setItem(STORED, asked() ? "off" : "on");
    draw();
  };
  byId("embedder-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const model = field.read();
    if (model !== null) useModel({ model, name: nameOf(model) });
  });
  byId("embedder-open").onclick = () => modelInput.click();
  modelInput.addEventListener("change", () => {
    const [model] = modelInput.files ?? [];
    modelInput.value = "";
    if (model) useModel({ model, name: nameOf(model.name) });
  });
  byId("embedder-forget").onclick = () => {
    useModel(null);
    byId("embedder-url").focus();
  };
  library.open().catch(() => {}); // a browser without storage: the page reports it when a file is added

  return {
    isDocument,
    add,
    /** Searches with an embedding model, and shows that. @param {string | string[]} model addresses @param {string} name */
    embed(model, name) {
      draw();
      dialog.showModal();
      useModel({ model, name });
    },
    /** Whether questions use the documents. */
    asked,
    /** Redraws what depends on the model that answers. */
    show: draw,
    /**
     * The question with passages, for the model; null if questions do not use the documents.
     * @param {string} question @param {{ role: string, content: string }[]} before @param {string} begun the answer's beginning
     */
    async ask(question, before, begun) {
      if (!asked() || !engine.loaded) return null;
      const { choice, stats } = engine.loaded;
      const context = choice.upstream ? null : (stats.context_length ?? null);
      return askDocuments(library, question, before, await engine.wisp(), context, begun);
    },
  };
}

/** Imports the PDF reader, a separate bundle. @param {HTMLElement} dialog has the addresses */
async function pdfReader(dialog) {
  const url = (/** @type {string | undefined} */ path) => new URL(path ?? "", document.baseURI).href;
  const { readPdf } = await import(url(dialog.dataset.pdf));
  const worker = url(dialog.dataset.pdfWorker);
  return (/** @type {ArrayBuffer} */ data, /** @type {AbortSignal | undefined} */ signal) =>
    readPdf(data, worker, signal);
}

/** @param {string} name @param {import("./texts.js").Text} about */
function documentText(name, about) {
  return h("div", {}, h("strong", { dir: "auto" }, name), h("small", {}, about));
}

/** @param {import("../retrieval/database.js").Document} document @param {() => void} remove */
function documentItem({ name, size, pages, passages }, remove) {
  const facts = joined([pages && t("{n} pages", { n: pages }), t("{n} passages", { n: passages }), bytes(size)]);
  const button = iconButton("trash", t("Remove {name}", { name }), remove);
  return h("li", { class: "document" }, documentText(name, facts), button);
}

/** @param {import("../retrieval/library.js").Job} job @param {() => void} cancel */
function jobItem({ file, state }, cancel) {
  const name = file?.name ?? "";
  const button = iconButton("close", t("Cancel {name}", { name }), cancel);
  return h("li", { class: "document busy" }, documentText(name, state), button);
}
