/** A repository in the hub dialog: its files, whether each fits this device, and buttons to use one. */
import { Hub } from "../hub/client.js";
import { best, fitBySize, likely } from "../hub/fit.js";
import { remember } from "../hub/next.js";
import { explain } from "./advice.js";
import { byId, h, iconButton } from "./dom.js";
import { bytes, plural, rate } from "./format.js";

/**
 * @typedef {import("./engine.js").Choice} Choice
 * @typedef {import("../hub/files.js").ModelFile} ModelFile
 * @typedef {import("../hub/fit.js").Fit} Fit
 * @typedef {import("../sdk/types.d.ts").Inspection} Inspection
 *
 * @typedef {object} Actions
 * @property {() => Promise<import("../wisp.js").Wisp>} wisp
 * @property {(choice: Choice) => void} choose loads a model
 * @property {(choice: Choice) => void} download stores a model for later
 * @property {(model: string | string[], name: string) => void} embed uses a model to search the documents
 */

const HEADERS = 24 << 20; // bytes of headers that may travel to state the fit of each file exactly

export class Repository {
  #actions;
  #dialog;
  #leaving = new AbortController();
  #id = "";
  /** @type {ModelFile[]} */
  #files = [];
  /** @type {Map<ModelFile, Fit>} */
  #fits = new Map();
  #embeds = false;
  #parameters = 0;

  /** @param {Actions} actions @param {{ close: () => void, failed: (error: unknown) => void }} dialog */
  constructor(actions, dialog) {
    this.#actions = actions;
    this.#dialog = dialog;
  }

  /** Shows a repository. @param {string} id OWNER/NAME */
  async open(id) {
    this.leave();
    this.#leaving = new AbortController();
    const { signal } = this.#leaving;
    this.#id = id;
    this.#files = [];
    this.#fits.clear();
    this.#parameters = 0;
    byId("hub-name").textContent = id;
    byId("hub-error").hidden = true;
    byId("hub-about").textContent = "Reading its list of files …";
    byId("hub-files").replaceChildren();
    try {
      const hub = await Hub.open();
      const found = await hub.files(id, { signal });
      if (signal.aborted) return;
      if (found.files.length) remember(id);
      this.#files = found.files;
      this.#embeds = /feature-extraction|sentence-similarity/.test(found.task ?? "");
      this.#parameters = found.parameters ?? 0;
      this.#about(found, hub);
      this.#draw();
      if (found.gated && !hub.hasToken) return this.#fail(`${id} is gated. Enter your token to use its files.`, true);
      await this.#inspect(signal);
    } catch (error) {
      if (signal.aborted) return;
      this.#fail(explain(error).message);
      this.#dialog.failed(error);
    }
  }

  /** Shows it again, with other settings. */
  again() {
    return this.open(this.#id);
  }

  /** Cancels what is asked. */
  leave() {
    this.#leaving.abort();
  }

  /** @param {import("../hub/client.js").Repository & { files: ModelFile[] }} found @param {Hub} hub */
  #about(found, hub) {
    const { id, files, license, gated } = found;
    const facts = [
      files.length ? plural(files.length, "model file") : "No GGUF model in it",
      license,
      gated && "gated",
    ];
    const link = h("a", { href: hub.page(id), target: "_blank", rel: "noopener" }, "its page");
    byId("hub-about").replaceChildren(`${facts.filter(Boolean).join(" · ")} · `, link);
  }

  /** @param {string} message @param {boolean} [needsToken] */
  #fail(message, needsToken = false) {
    const error = byId("hub-error");
    error.textContent = message;
    error.hidden = false;
    if (needsToken) /** @type {HTMLDetailsElement} */ (byId("hub-settings")).open = true;
  }

  /** States the fit of each file: exactly of the likely one, and of the others if their headers are small. @param {AbortSignal} signal */
  async #inspect(signal) {
    if (!this.#files.length) return;
    const wisp = await this.#actions.wisp();
    const inspect = (/** @type {ModelFile} */ file) => wisp.models.inspect(file.urls, { signal });
    const first = likely(this.#files);
    const inspection = await inspect(first);
    if (signal.aborted) return;
    this.#parameters = inspection.parameters;
    for (const file of this.#files)
      this.#fits.set(file, file === first ? inspection : fitBySize(inspection, file.size));
    this.#draw();
    if (inspection.verdict === "unsupported" || inspection.travelled * this.#files.length > HEADERS) return;
    for (const file of this.#files.filter((file) => file !== first)) {
      this.#fits.set(file, await inspect(file));
      if (signal.aborted) return;
      this.#draw();
    }
  }

  #draw() {
    const fitOf = (/** @type {ModelFile} */ file) => this.#fits.get(file);
    const chosen = this.#parameters && this.#fits.size ? best(this.#files, fitOf, this.#parameters) : undefined;
    const focused = document.activeElement?.closest("li")?.dataset.name;
    const ordered = chosen ? [chosen, ...this.#files.filter((file) => file !== chosen)] : this.#files;
    byId("hub-files").replaceChildren(...ordered.map((file) => this.#item(file, file === chosen)));
    if (focused) this.#button(focused)?.focus();
  }

  /** @param {string} name */
  #button(name) {
    const items = /** @type {HTMLElement[]} */ ([...byId("hub-files").children]);
    return items.find((item) => item.dataset.name === name)?.querySelector("button");
  }

  /** @param {ModelFile} file @param {boolean} chosen */
  #item(file, chosen) {
    const fit = this.#fits.get(file);
    const parts = file.urls.length > 1 && plural(file.urls.length, "part");
    const head = [bytes(file.size), parts].filter(Boolean).join(" · ");
    const usable = fit?.verdict !== "unsupported" && fit?.verdict !== "too_large";
    const label = file.quantization ?? file.name;
    const button = h(
      "button",
      {
        type: "button",
        class: chosen ? "button primary" : "button",
        disabled: !usable,
        on: { click: () => this.#use(file) },
      },
      this.#embeds ? "Use for documents" : "Run",
    );
    button.setAttribute("aria-label", `${button.textContent} ${file.name}`);
    return h(
      "li",
      { class: chosen ? "hub-file best" : "hub-file", "data-name": file.name },
      h(
        "div",
        {},
        h("strong", {}, label, h("span", { class: "hub-size" }, ` ${head}`)),
        chosen ? h("span", { class: "badge" }, "Best for this device") : null,
        h("small", { class: fit?.verdict ?? "" }, fit ? textOf(fit) : "Checking whether it fits …"),
      ),
      h("div", { class: "hub-actions" }, button, usable && this.#downloadButton(file)),
    );
  }

  /** @param {ModelFile} file */
  #downloadButton(file) {
    const button = iconButton("fetch", `Download ${file.name}`, () => {
      this.#actions.download(choiceOf(file));
      button.disabled = true;
      button.classList.add("done");
      button.title = button.ariaLabel = `${file.name} is in the download queue`;
    });
    return button;
  }

  /** @param {ModelFile} file */
  #use(file) {
    const choice = choiceOf(file);
    this.#dialog.close();
    if (this.#embeds) this.#actions.embed(/** @type {string | string[]} */ (choice.keep), file.name);
    else this.#actions.choose(choice);
  }
}

/** @param {ModelFile} file @returns {Choice} */
function choiceOf({ urls, name, sha256 }) {
  const model = urls.length > 1 ? urls : urls[0];
  return { model, name, keep: model, sha256: sha256 ?? undefined };
}

/** @param {Fit} fit */
export function textOf({ verdict, advice, context_length, total, tokens_per_second, backend, about }) {
  if (verdict === "unsupported" || verdict === "too_large") return advice ?? "Too large for this device.";
  const speed =
    tokens_per_second && `up to ${rate(tokens_per_second)} tokens/s${backend === "cpu" ? " on the CPU" : ""}`;
  const memory = total && `${about ? "about " : ""}${bytes(total)} of memory`;
  if (verdict === "maybe") return [`May be too large: ${memory}`, speed].filter(Boolean).join(" · ");
  return [`Fits with ${plural(context_length ?? 0, "token")} of context`, memory, speed].filter(Boolean).join(" · ");
}
