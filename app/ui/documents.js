/** The documents dialog: add and remove documents, choose how they are searched, and whether questions use them. */
import { isDocument } from "../retrieval/read.js";
import { explain } from "./advice.js";
import { askDocuments } from "./ask.js";
import { byId, h, iconButton } from "./dom.js";
import { bytes, plural } from "./format.js";
import { Library } from "../retrieval/library.js";
import { isAddress, nameOf } from "./models.js";
import { announce, notify } from "./notices.js";

const STORED = "wisp.ask"; // "off": questions do not use the documents

/** @typedef {import("./engine.js").Engine} Engine */

/** @param {Engine} engine */
export function startDocuments(engine) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("documents-dialog"));
  const input = /** @type {HTMLInputElement} */ (byId("documents-input"));
  const modelInput = /** @type {HTMLInputElement} */ (byId("embedder-file"));
  const toggle = byId("ask-documents");
  const error = byId("embedder-error");
  const library = new Library({ wisp: () => engine.wisp(), pdf: () => pdfReader(dialog), changed: () => draw() });

  const asked = () => library.documents.length > 0 && localStorage.getItem(STORED) !== "off";
  const draw = () => {
    const { documents, busy, embedder } = library;
    const ids = new Set(documents.map(({ name }) => name));
    const waiting = [...busy].filter(([name]) => name && !ids.has(name));
    byId("document-list").replaceChildren(
      ...documents.map((document) => documentItem(document, busy.get(document.name), () => remove(document))),
      ...waiting.map(([name, what]) => h("li", { class: "document busy" }, documentText(name, `${what} …`))),
    );
    byId("documents-count").textContent = documents.length ? String(documents.length) : "";
    toggle.hidden = !documents.length;
    toggle.setAttribute("aria-pressed", String(asked()));
    const names = plural(documents.length, "document");
    const upstream = engine.loaded?.choice.upstream;
    const destination = upstream ? `, whose passages go to ${upstream}` : "";
    toggle.title = toggle.ariaLabel = asked() ? `Answers come from ${names}${destination}` : `Answer from ${names}`;
    toggle.classList.toggle("away", upstream !== undefined);
    byId("prompt").setAttribute("placeholder", asked() ? "Ask your documents" : "Write a message");
    const loading = busy.get("");
    byId("search-how").textContent = loading
      ? `${loading} …`
      : embedder.chosen
        ? `By meaning, with ${embedder.chosen.name}, and by words.`
        : "By words alone. An embedding model finds what is said in other words, too.";
    if (library.trouble && !loading) {
      error.textContent = `Searched by words alone. ${library.trouble}`;
      error.hidden = false;
    }
    byId("embedder-form").hidden = embedder.chosen !== null || loading !== undefined;
    byId("embedder-forget").hidden = !embedder.chosen || loading !== undefined;
    byId("documents-away").hidden = !upstream;
    byId("documents-away").textContent =
      `${upstream} answers now: the passages found for a question leave this computer with it.`;
  };

  const remove = async (/** @type {import("../retrieval/database.js").Document} */ document) => {
    await library.remove(document.id);
    announce(`${document.name} is removed.`);
    byId("documents-choose").focus();
  };
  const add = async (/** @type {File[]} */ files) => {
    for (const file of files) {
      library.add(file).then(
        () => announce(`${file.name} is ready.`),
        (failure) => {
          const { message, more } = explain(failure);
          const text = `${file.name} was not read.`;
          notify({ key: `document ${file.name}`, text, more: more ? `${message} ${more}` : message, kind: "error" });
          if (dialog.open) errors.append(h("p", { class: "form-error", role: "alert" }, `${text} ${message}`));
        },
      );
    }
  };
  const errors = byId("document-errors");
  const useModel = async (/** @type {import("../retrieval/embedder.js").Chosen | null} */ chosen) => {
    error.hidden = true;
    try {
      await library.choose(chosen);
    } catch (failure) {
      error.textContent = `${chosen?.name} is not used. ${explain(failure).message}`;
      error.hidden = false;
    }
  };

  byId("documents-button").onclick = () => {
    errors.replaceChildren();
    draw();
    dialog.showModal();
  };
  byId("documents-choose").onclick = () => input.click();
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
    const field = /** @type {HTMLInputElement} */ (byId("embedder-url"));
    const address = field.value.trim();
    field.setAttribute("aria-invalid", String(!isAddress(address)));
    if (!isAddress(address)) return field.focus();
    const model = new URL(address, document.baseURI).href;
    useModel({ model, name: nameOf(model) });
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
  return (/** @type {ArrayBuffer} */ data) => readPdf(data, url(dialog.dataset.pdfWorker));
}

/** @param {string} name @param {string} about */
function documentText(name, about) {
  return h("div", {}, h("strong", {}, name), h("small", {}, about));
}

/** @param {import("../retrieval/database.js").Document} document @param {string | undefined} busy @param {() => void} remove */
function documentItem({ name, size, pages, passages }, busy, remove) {
  const facts = [pages && plural(pages, "page"), plural(passages, "passage"), bytes(size)].filter(Boolean).join(" · ");
  return h(
    "li",
    { class: busy ? "document busy" : "document" },
    documentText(name, busy ? `${busy} …` : facts),
    iconButton("trash", `Remove ${name}`, remove),
  );
}
