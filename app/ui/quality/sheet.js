/** The sheet of quality figures: what to measure and on which text; progress; results. A bundle of its own. */
import { joined, sentences, t } from "../../language/phrase.js";
import { nameOf } from "../address.js";
import { h, iconButton } from "../dom.js";
import { duration } from "../format.js";
import { say } from "../texts.js";
import { TextInput } from "./input.js";
import { divergenceResult, perplexityResult, questionsResult, resultCard } from "./result.js";

/**
 * @typedef {import("../engine.js").Choice} Choice
 * @typedef {import("../texts.js").Text} Text
 * @typedef {import("./result.js").Result} Result
 * @typedef {import("../../sdk/figures.d.ts").QualityOptions} QualityOptions
 * @typedef {"perplexity" | "divergence" | "questions"} Measure
 */

const CHUNK = 512; // tokens, llama-perplexity's default
const LEAST = 4;
const OPEN_FILE = "@file";

/** @type {Record<Measure, { name: Text, about: Text, label: Text, placeholder: Text, accept: string }>} */
const MEASURES = {
  perplexity: {
    name: t("Perplexity"),
    about: t("How well the model foresees a text: lower is better. Compare figures of the same text only."),
    label: t("Text|to measure with"),
    placeholder: t("A long text, such as a chapter of a book"),
    accept: ".txt,.md,.raw,.csv,text/*",
  },
  divergence: {
    name: t("Divergence"),
    about: t(
      "What a quantisation costs: how far the probabilities of its words are from another model's, such as a larger file of the same model. 0 is the same.",
    ),
    label: t("Text|to measure with"),
    placeholder: t("A long text, such as a chapter of a book"),
    accept: ".txt,.md,.raw,.csv,text/*",
  },
  questions: {
    name: t("Questions"),
    about: t("How many multiple-choice questions the model answers right."),
    label: t("Questions, one a line as JSON"),
    placeholder: '{"question": "2 + 2 =", "choices": ["3", "4"], "answer": 1}',
    accept: ".jsonl,.ndjson,.json,.txt",
  },
};

export class Sheet {
  #parts;
  #text = new TextInput();
  #about = h("p", { class: "note" });
  #model = h("p", { class: "note quality-model" });
  #base = h("select");
  #baseFile = h("input", {
    class: "hidden",
    type: "file",
    accept: ".gguf",
    multiple: true,
    tabIndex: -1,
    "aria-label": t("A .gguf file"),
  });
  #baseField = h("label", { class: "field" }, t("Compared with"), this.#base);
  #chunk = h("input", { type: "number", min: String(LEAST), step: "1", inputMode: "numeric" });
  #chunkField = h(
    "label",
    { class: "field" },
    t("Tokens of a chunk"),
    this.#chunk,
    h("small", {}, t("the same for all figures that you compare; fewer need less memory")),
  );
  #error = h("p", { class: "form-error", role: "alert", dir: "auto", hidden: true });
  #status = h("p", { class: "note", role: "status" });
  #bar = h("progress", { max: 1, "aria-label": t("Progress"), hidden: true });
  #start = h("button", { type: "submit", class: "button primary" }, t("Measure"));
  #cancel = h("button", { type: "button", class: "button", hidden: true }, t("Cancel"));
  #results = h("ol", { class: "quality-results", "aria-label": t("Results") });
  #choice = h("fieldset", { class: "scopes" }, h("legend", { class: "hidden" }, t("What to measure")));
  #dialog;
  /** @type {Measure} */
  #measure = "perplexity";
  /** @type {Choice[]} models to compare with, in the order of the options */
  #others = [];
  /** @type {AbortController | null} of the measurement */
  #running = null;

  /** @param {import("../quality.js").Parts} parts */
  constructor(parts) {
    this.#parts = parts;
    for (const [value, { name }] of Object.entries(MEASURES)) {
      const radio = h("input", { type: "radio", name: "measure", value, checked: value === this.#measure });
      radio.onchange = () => this.#describe(/** @type {Measure} */ (value));
      this.#choice.append(h("label", {}, radio, h("span", {}, name)));
    }
    const form = h(
      "form",
      { class: "sheet-body quality", noValidate: true, autocomplete: "off" },
      this.#choice,
      this.#about,
      this.#model,
      this.#baseField,
      this.#baseFile,
      this.#text.element,
      this.#chunkField,
      this.#error,
      h("div", { class: "quality-progress" }, this.#bar, this.#status),
      h("div", { class: "quality-actions" }, this.#start, this.#cancel),
      this.#results,
    );
    form.onsubmit = (event) => {
      event.preventDefault();
      if (!this.#running) void this.#run();
    };
    this.#cancel.onclick = () => this.#stop();
    this.#base.onchange = () => void (this.#base.value === OPEN_FILE && this.#baseFile.click());
    this.#baseFile.onchange = () => this.#chooseFile();
    this.#baseFile.oncancel = () => (this.#base.selectedIndex = 0);
    const close = iconButton("close", t("Close"), () => this.#dialog.close());
    const head = h("div", { class: "sheet-head" }, h("h2", { id: "quality-title" }, t("Quality figures")), close);
    this.#dialog = h(
      "dialog",
      { class: "sheet", id: "quality-dialog", "aria-labelledby": "quality-title" },
      head,
      form,
    );
    this.#dialog.addEventListener("click", (event) => event.target === this.#dialog && this.#dialog.close());
    document.body.append(this.#dialog);
    this.#describe(this.#measure);
  }

  /** Shows the sheet. A measurement goes on while it is closed. */
  open() {
    this.#dialog.showModal();
    if (this.#running) return;
    this.#showModel();
    void this.#offer();
  }

  get #loaded() {
    const { loaded } = this.#parts.engine;
    return loaded && !loaded.choice.upstream ? loaded : null;
  }

  #showModel() {
    const { loaded } = this.#parts.engine;
    const upstream = loaded?.choice.upstream;
    if (upstream)
      say(
        this.#model,
        t("{server} gives no probabilities of all words: choose a model of this computer.", { server: upstream }),
      );
    else
      say(this.#model, loaded ? t("Of {name}, which answers now.", { name: loaded.name }) : t("No model is loaded."));
    this.#start.disabled = !this.#loaded;
    const most = loaded?.stats.context_length ?? CHUNK;
    this.#chunk.max = String(most);
    if (!this.#chunk.value || Number(this.#chunk.value) > most) this.#chunk.value = String(Math.min(CHUNK, most));
  }

  /** Lists the models to compare with. */
  async #offer() {
    const chosen = this.#others[this.#base.selectedIndex];
    const files = this.#others.filter(({ model }) => typeof model !== "string");
    this.#others = [...(await this.#parts.others().catch(() => [])), ...files];
    this.#listOthers(
      Math.max(
        0,
        this.#others.findIndex(({ model }) => model === chosen?.model),
      ),
    );
  }

  /** @param {number} selected */
  #listOthers(selected) {
    this.#base.replaceChildren(
      ...this.#others.map(({ name }, index) => h("option", { value: String(index) }, name)),
      h("option", { value: OPEN_FILE }, t("A .gguf file of this computer…")),
    );
    this.#base.selectedIndex = selected;
  }

  #chooseFile() {
    const files = [...(this.#baseFile.files ?? [])].toSorted((a, b) => a.name.localeCompare(b.name));
    this.#baseFile.value = "";
    if (!files.length) return;
    this.#others.push({ model: files.length > 1 ? files : files[0], name: nameOf(files[0].name) });
    this.#listOthers(this.#others.length - 1);
  }

  /** @param {Measure} measure */
  #describe(measure) {
    this.#measure = measure;
    const { about, label, placeholder, accept } = MEASURES[measure];
    say(this.#about, about);
    this.#text.describe(label, placeholder, accept);
    this.#baseField.hidden = measure !== "divergence";
    this.#chunkField.hidden = measure === "questions";
  }

  #stop() {
    this.#running?.abort();
    if (this.#parts.engine.isLoading) this.#parts.engine.cancel();
    say(this.#status, t("Stopping…"));
  }

  async #run() {
    const controller = new AbortController();
    this.#running = controller;
    const begun = performance.now();
    this.#lock(true);
    try {
      const result = await this.#measured(controller.signal);
      this.#results.prepend(resultCard(result, this.#text.name, (performance.now() - begun) / 1000));
      say(this.#status, sentences(t("Done."), joined([result.title, result.rows[0][1]], ": ")));
    } catch (error) {
      const { code, name } = /** @type {{ code?: string, name?: string }} */ (error ?? {});
      if (controller.signal.aborted || code === "aborted" || name === "AbortError") say(this.#status, t("Cancelled."));
      else this.#fail(error);
    } finally {
      this.#running = null;
      this.#lock(false);
    }
  }

  /** @param {AbortSignal} signal @returns {Promise<Result>} */
  async #measured(signal) {
    const measure = this.#measure;
    const loaded = this.#loaded;
    if (!loaded) throw new Error(`${t("No model is loaded.")}`);
    const { name } = loaded;
    const contextLength = measure === "questions" ? undefined : this.#chunkLength();
    const text = await this.#text.read();
    const base = measure === "divergence" ? await this.#loadBase() : null;
    const { quality } = await this.#parts.engine.ready();
    signal.throwIfAborted();
    const options = { model: loaded.stats.model, contextLength, signal, onProgress: this.#progress(performance.now()) };
    if (measure === "questions") return questionsResult(name, await quality.multipleChoice(text, options));
    if (!base) return perplexityResult(name, await quality.perplexity(text, options));
    const found = await quality.divergence(text, { ...options, base: base.stats.model });
    return divergenceResult(name, base.name, found);
  }

  #chunkLength() {
    const length = Number(this.#chunk.value);
    const valid = Number.isInteger(length) && length >= LEAST && length <= Number(this.#chunk.max);
    this.#chunk.setAttribute("aria-invalid", String(!valid));
    if (valid) return length;
    throw new Error(`${t("A chunk has {least} to {most} tokens.", { least: LEAST, most: Number(this.#chunk.max) })}`);
  }

  #loadBase() {
    const choice = this.#others[this.#base.selectedIndex];
    if (!choice) throw new Error(`${t("Choose a model to compare with.")}`);
    say(this.#status, t("Loading {name}.", { name: choice.name }));
    return this.#parts.beside(choice);
  }

  /** @param {number} begun @returns {NonNullable<QualityOptions["onProgress"]>} */
  #progress(begun) {
    return (done, total) => {
      this.#bar.value = done / total;
      const left = ((performance.now() - begun) / 1000 / done) * (total - done);
      const part = t("{part} of {whole}", { part: done, whole: total });
      say(this.#status, joined([part, left > 0 && t("{time} left", { time: duration(left) })]));
    };
  }

  /** @param {unknown} error */
  #fail(error) {
    const { message, param } = /** @type {{ message?: string, param?: string }} */ (error ?? {});
    const short =
      param === "text" && t("The text is too short for two chunks. Take a longer one, or fewer tokens a chunk.");
    say(this.#status, "");
    say(this.#error, short || message || String(error));
    this.#error.hidden = false;
  }

  /** @param {boolean} running */
  #lock(running) {
    const focused = this.#dialog.contains(document.activeElement);
    this.#text.lock(running);
    for (const part of [this.#choice, this.#base, this.#chunk]) part.disabled = running;
    this.#start.hidden = running;
    this.#cancel.hidden = !running;
    this.#bar.hidden = !running;
    if (running) {
      this.#error.hidden = true;
      this.#bar.removeAttribute("value");
      say(this.#status, t("Measuring…"));
    } else this.#showModel();
    const lost = focused && !document.activeElement?.closest("dialog"); // a hidden button loses the focus
    if (running && focused) this.#cancel.focus();
    else if (lost || document.activeElement === this.#cancel) this.#start.focus();
  }
}
