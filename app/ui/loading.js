/** Shows the progress of a load: stage, bytes, speed and one bar over all stages. */
import { joined, t } from "../language/phrase.js";
import { byId, h } from "./dom.js";
import { bytes, speed as speedOf } from "./format.js";
import { say } from "./texts.js";

/** @typedef {import("./texts.js").Text} Text */

/**
 * The steps that the page shows, the engine's stages of each, and each step's weight on the bar.
 * @type {{ label: Text, doing: Text, stages: string[], weight: number }[]}
 */
const STEPS = [
  { label: t("Start"), doing: t("Starting Python"), stages: ["pyodide", "packages", "python"], weight: 3 },
  { label: t("Fetch"), doing: t("Downloading"), stages: ["download", "cache"], weight: 4 },
  { label: t("Check"), doing: t("Checking"), stages: ["hash"], weight: 1 },
  { label: t("Upload"), doing: t("Uploading the weights"), stages: ["upload"], weight: 1 },
  { label: t("Compile"), doing: t("Compiling kernels"), stages: ["compile"], weight: 3 },
];

const UPLOAD = 3;

export class Loading {
  #panel = byId("loading");
  #bar = /** @type {HTMLProgressElement} */ (byId("loading-bar"));
  #name = "";
  #from = 0;
  /** @type {(import("../sdk/connection.js").Progress | null)[]} the last progress of each step */
  #seen = [];
  #shown = 0;
  /** @type {Text} */
  #needs = "";
  #tuning = false; // kernels are being measured, during the download if there is one

  /** @param {string} name of the model @param {boolean} booted whether Python runs already */
  start(name, booted) {
    this.#name = name;
    this.#from = booted ? 1 : 0;
    this.#seen = STEPS.map(() => null);
    this.#shown = 0;
    this.#needs = "";
    this.#tuning = false;
    byId("loading-steps").replaceChildren(...STEPS.slice(this.#from).map(({ label }) => h("li", {}, label)));
    this.#draw(this.#from);
    this.#panel.hidden = false;
  }

  /** @param {import("../sdk/connection.js").Progress} progress */
  update(progress) {
    if (progress.stage === "tune") {
      this.#tuning = progress.loaded < progress.total;
      if (!this.#panel.hidden) this.#draw();
    }
    if (progress.stage === "memory") this.#needs = t("needs {size} of memory", { size: bytes(progress.total) });
    const step = STEPS.findIndex(({ stages }) => stages.includes(progress.stage));
    if (step < 0 || this.#panel.hidden) return;
    const before = this.#seen[step];
    const less = before && before.total === progress.total && before.loaded > progress.loaded;
    if (!less) this.#seen[step] = progress;
    if (step > 0) this.#seen[0] = { stage: "python", loaded: 1, total: 1 }; // Python runs: the first step is done
    this.#draw();
  }

  end() {
    this.#panel.hidden = true;
  }

  #draw(step = this.#current()) {
    const progress = this.#seen[step];
    const { doing } = STEPS[step];
    const last = step === STEPS.length - 1 && this.#done(step);
    const tuning = this.#tuning && !this.#seen[1];
    const name = { name: this.#name };
    const fetching = progress?.stage === "cache" ? t("Reading {name}", name) : t("Downloading {name}", name);
    const now = tuning ? t("Choosing the fastest kernels") : step === 1 ? fetching : doing;
    say(byId("loading-stage"), last ? t("Warming up") : now);
    const once = tuning ? t("once per model") : step === 0 ? t("once per visit") : null;
    say(byId("loading-detail"), once ?? (progress && !last ? detail(progress, step, this.#needs) : ""));
    const items = byId("loading-steps").children;
    for (let index = this.#from; index < STEPS.length; index++) {
      const state = this.#done(index) || index < step ? "done" : index === step ? "active" : "";
      items[index - this.#from].className = state;
    }
    const steps = STEPS.map((entry, index) => ({ weight: entry.weight, part: this.#part(index) })).slice(this.#from);
    const total = steps.reduce((sum, { weight }) => sum + weight, 0);
    const part = steps.reduce((sum, { weight, part }) => sum + weight * part, 0) / total;
    this.#shown = Math.max(this.#shown, part); // the bar never moves backwards, whatever the order of the stages
    this.#bar.value = this.#shown;
  }

  /** The first step in progress; between two steps, the later one. */
  #current() {
    let last = this.#from;
    for (let index = this.#from; index < STEPS.length; index++) {
      if (!this.#seen[index]) continue;
      last = index;
      if (!this.#done(index)) return index;
    }
    return last;
  }

  /** @param {number} index @returns {number} 0 to 1 */
  #part(index) {
    const progress = this.#seen[index];
    // Download and check may report nothing (a local file); they are done when the upload is.
    if (!progress) return index < UPLOAD && this.#done(UPLOAD) ? 1 : 0;
    return progress.total > 0 ? Math.min(1, progress.loaded / progress.total) : 0;
  }

  /** @param {number} index @returns {boolean} */
  #done(index) {
    return this.#seen[index] !== null && this.#part(index) >= 1;
  }
}

/** @param {import("../sdk/connection.js").Progress} progress @param {number} step @param {Text} needs */
function detail({ loaded, total, speed }, step, needs) {
  if (STEPS[step].stages[0] === "compile") {
    return total ? t("{part} of {whole}", { part: loaded, whole: total }) : "";
  }
  const amount = total ? t("{part} of {whole}", { part: bytes(loaded), whole: bytes(total) }) : bytes(loaded);
  return joined([amount, speed && speedOf(speed), step === 1 && needs]);
}
