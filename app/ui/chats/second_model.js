/**
 * A second model that answers each question beside the first one. Both are loaded where memory allows. Where it does not,
 * the engine evicts the idle one for each answer, so that they answer one after the other.
 */
import { t } from "../../language/phrase.js";
import { h } from "../dom.js";
import { notify } from "../notices.js";
import { show } from "../texts.js";
import { openMenu } from "./menu.js";
import { otherChoices } from "./other_model.js";

/**
 * @typedef {import("../engine.js").Choice} Choice
 * @typedef {import("../engine.js").Loaded} Loaded
 */

const TEXTS = {
  none: t("Ask a second model, too"),
  chosen: (/** @type {string} */ name) => t("{name} answers, too. Choose another second model", { name }),
  off: t("Ask one model only"),
  failed: (/** @type {string} */ name) => t("{name} was not loaded.", { name }),
};

export class SecondModel {
  /** @type {Loaded | null} */
  loaded = null;
  #choices = 0; // made so far: the newest wins, whichever is loaded first
  #name = h("span", { class: "model-name" });
  #button = h("button", { type: "button", class: "second-model icon-button", icon: "columns" }, this.#name);

  /** @param {import("../engine.js").Engine} engine @param {(choice: Choice) => Promise<Loaded>} load beside the first one */
  constructor(engine, load) {
    this.engine = engine;
    this.load = load;
    this.#button.setAttribute("aria-haspopup", "menu");
    this.#button.onclick = () => void this.#open();
    document.querySelector(".topbar .spacer")?.after(this.#button); // no name of a model moves it
    this.#show();
  }

  /** The engine, for a request to the second model. */
  ready() {
    return this.engine.ready();
  }

  /** @param {unknown} error of a request */
  forgetAfter(error) {
    this.engine.forgetAfter(error);
    if (!this.engine.loaded) this.#use(null);
  }

  async #open() {
    const entries = (await otherChoices(this.engine)).map((choice) => ({
      label: choice.name,
      icon: choice.upstream ? "away" : "columns",
      run: () => void this.#choose(choice),
    }));
    const off = { label: TEXTS.off, icon: "close", run: () => this.#use(null) };
    openMenu(this.#button, this.loaded ? [off, ...entries] : entries);
  }

  /** @param {Choice} choice */
  async #choose(choice) {
    const mine = ++this.#choices;
    try {
      const loaded = await this.load(choice);
      if (mine === this.#choices) this.#use(loaded);
    } catch (/** @type {any} */ error) {
      if (error?.code === "aborted" || mine !== this.#choices) return;
      notify({ key: "second", text: TEXTS.failed(choice.name), more: `${error?.message ?? error}`, kind: "error" });
    }
  }

  /** @param {Loaded | null} loaded */
  #use(loaded) {
    this.#choices++;
    this.loaded = loaded;
    this.#show();
  }

  #show() {
    const { loaded } = this;
    this.#name.textContent = loaded?.name ?? "";
    this.#button.setAttribute("aria-pressed", String(loaded !== null));
    const label = loaded ? TEXTS.chosen(loaded.name) : TEXTS.none;
    show(this.#button, "title", label);
    show(this.#button, "aria-label", label);
  }
}
