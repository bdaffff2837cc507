/** A measured figure as a card that can be copied. */
import { joined, number, t } from "../../language/phrase.js";
import { copyButton } from "../copy.js";
import { h } from "../dom.js";
import { duration, percent } from "../format.js";

/**
 * @typedef {import("../texts.js").Text} Text
 * @typedef {import("../../sdk/figures.d.ts").Perplexity} Perplexity
 * @typedef {{ title: Text, rows: [Text, Text][] }} Result
 */

const fine = (/** @type {number} */ value) => number(value, { maximumFractionDigits: 4 });
const nats = (/** @type {number} */ value) =>
  t("{value} nats", { value: number(value, { maximumSignificantDigits: 4 }) });
const withError = (/** @type {Perplexity} */ { perplexity, error }) => joined([fine(perplexity), fine(error)], " ± ");

/** @param {string} model @param {Perplexity} found @returns {Result} */
export const perplexityResult = (model, found) => ({
  title: t("Perplexity of {name}", { name: model }),
  rows: [
    [t("Perplexity"), withError(found)],
    [t("Tokens scored"), number(found.tokens)],
    [t("Chunks"), number(found.chunks)],
  ],
});

/** @param {string} model @param {string} base @param {import("../../sdk/figures.d.ts").Divergence} found @returns {Result} */
export const divergenceResult = (model, base, found) => ({
  title: t("Divergence of {name} from {base}", { name: model, base }),
  rows: [
    [t("Mean divergence"), nats(found.mean)],
    [t("Largest divergence"), nats(found.max)],
    [t("Same most probable token"), percent(found.same_top, 1)],
    [t("Perplexity of {name}", { name: model }), withError(found.model)],
    [t("Perplexity of {name}", { name: base }), withError(found.base)],
    [t("Tokens scored"), number(found.tokens)],
  ],
});

/** @param {string} model @param {import("../../sdk/figures.d.ts").Score} found @returns {Result} */
export const questionsResult = (model, { correct, total, accuracy }) => ({
  title: t("Questions to {name}", { name: model }),
  rows: [
    [t("Right"), percent(accuracy, 1)],
    [t("Right answers"), number(correct)],
    [t("Questions"), number(total)],
  ],
});

/** @param {Result} result @param {Text} source the text's name @param {number} seconds */
export function resultCard({ title, rows }, source, seconds) {
  /** @type {[Text, Text][]} */
  const all = [...rows, [t("Measured with"), source], [t("Took"), duration(seconds)]];
  const table = () => [`${title}`, ...all.map(([name, value]) => `${name}\t${value}`)].join("\n");
  return h(
    "li",
    { class: "quality-result" },
    h("div", { class: "quality-head" }, h("h3", { dir: "auto" }, title), copyButton(t("Copy the figures"), table)),
    h("dl", {}, ...all.flatMap(([name, value]) => [h("dt", { dir: "auto" }, name), h("dd", { dir: "auto" }, value)])),
  );
}
