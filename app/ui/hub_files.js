/** A repository in the hub dialog: its files, whether each fits this device, and buttons to use one. */
import { Hub } from "../hub/client.js";
import { best, fitBySize, likely } from "../hub/fit.js";
import { remember } from "../hub/next.js";
import { joined, sentences, t } from "../language/phrase.js";
import { explain } from "./advice.js";
import { byId, h, iconButton } from "./dom.js";
import { bytes, rate, tokens } from "./format.js";
import { LongList } from "./long_list.js";
import { say, show } from "./texts.js";

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
  #list = new LongList(byId("hub-files"));
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
    say(byId("hub-about"), t("Reading its list of files …"));
    this.#list.show([]);
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
      if (found.gated && !hub.hasToken) {
        return this.#fail(t("{name} is gated. Enter your token to use its files.", { name: id }), true);
      }
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
      files.length ? t("{n} model files", { n: files.length }) : t("No GGUF model in it"),
      license,
      gated && t("gated"),
    ];
    const link = h("a", { href: hub.page(id), target: "_blank", rel: "noopener" }, t("its page"));
    say(byId("hub-about"), "");
    byId("hub-about").replaceChildren(h("span", {}, joined(facts)), " · ", link);
  }

  /** @param {import("./texts.js").Text} message @param {boolean} [needsToken] */
  #fail(message, needsToken = false) {
    const error = byId("hub-error");
    say(error, message);
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
    const ordered = chosen ? [chosen, ...this.#files.filter((file) => file !== chosen)] : this.#files;
    this.#list.show(
      ordered.map((file) => ({
        key: file.name,
        state: [fitOf(file), file === chosen],
        draw: () => this.#item(file, file === chosen),
      })),
    );
  }

  /** @param {ModelFile} file @param {boolean} chosen */
  #item(file, chosen) {
    const fit = this.#fits.get(file);
    const parts = file.urls.length > 1 && t("{n} parts", { n: file.urls.length });
    const head = joined([bytes(file.size), parts, file.projector && t("with its projector")]);
    const usable = fit?.verdict !== "unsupported" && fit?.verdict !== "too_large";
    const label = file.quantization ?? file.name;
    const use = this.#embeds ? t("Use for documents") : t("Run");
    const button = h(
      "button",
      {
        type: "button",
        "aria-label": joined([use, file.name], " "),
        class: chosen ? "button primary" : "button",
        disabled: !usable,
        on: { click: () => this.#use(file) },
      },
      use,
    );
    return h(
      "li",
      { class: chosen ? "hub-file best" : "hub-file" },
      h(
        "div",
        {},
        h("strong", {}, h("bdi", {}, label), " ", h("bdi", { class: "hub-size" }, head)),
        chosen ? h("span", { class: "badge" }, t("Best for this device")) : null,
        h("small", { class: fit?.verdict ?? "" }, fit ? textOf(fit) : t("Checking whether it fits …")),
      ),
      h("div", { class: "hub-actions" }, button, usable && this.#downloadButton(file)),
    );
  }

  /** @param {ModelFile} file */
  #downloadButton(file) {
    const button = iconButton("fetch", t("Download {name}", { name: file.name }), () => {
      this.#actions.download(choiceOf(file));
      button.disabled = true;
      button.classList.add("done");
      for (const name of ["title", "aria-label"])
        show(button, name, t("{name} is in the download queue.", { name: file.name }));
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
function choiceOf({ urls, name, sha256, projector }) {
  const model = urls.length > 1 ? urls : urls[0];
  return { model, name, keep: model, sha256: sha256 ?? undefined, foundProjector: projector ?? undefined };
}

/** @param {Fit} fit */
export function textOf({ verdict, advice, context_length, total, tokens_per_second, backend, about }) {
  if (verdict === "unsupported" || verdict === "too_large") return advice ?? t("Too large for this device.");
  const speed = tokens_per_second && speedOf(tokens_per_second, backend === "cpu");
  const size = bytes(total ?? 0);
  const memory = total && (about ? t("about {size} of memory", { size }) : t("{size} of memory", { size }));
  if (verdict === "maybe") return joined([t("May be too large: {memory}", { memory: memory || "" }), speed]);
  return joined([t("Fits with {tokens} of context", { tokens: tokens(context_length ?? 0) }), memory, speed]);
}

/** @param {number} perSecond tokens @param {boolean} onCpu */
function speedOf(perSecond, onCpu) {
  const speed = { rate: rate(perSecond) };
  return onCpu ? t("up to {rate} tokens/s on the CPU", speed) : t("up to {rate} tokens/s", speed);
}
