/** A small plot of one or two figures over time. The value beside it says the newest in words. */
import uPlot from "uplot";
import { date, language, t } from "../../language/phrase.js";
import { h } from "../dom.js";
import { say } from "../texts.js";

const HEIGHT = 96; // px
const AXIS = 58; // px of the vertical axis, at least
const GAP = 16; // px beside its labels
const SECONDS = [1, 5, 10, 30, 60, 300, 600, 1800, 3600]; // between two times on the axis

/**
 * @typedef {import("../../sdk/monitor.js").Sample} Sample
 * @typedef {object} Figure
 * @property {import("../texts.js").Text} title
 * @property {(sample: Sample) => (number | null)[]} values one per line
 * @property {(value: number) => import("../texts.js").Text} format of the axis
 * @property {(sample: Sample) => import("../texts.js").Text} text the newest value in words
 * @property {number} [max] of the axis
 */

/** @param {number} time seconds since 1970 */
const clock = (time) => String(date(1000 * time, { minute: "2-digit", second: "2-digit" }));

/** Lets a number stand before its unit from right to left, though the plot runs from left to right. */
const mark = () => (language().rtl ? "\u200f" : "");

/** Whether a line has one value, which is drawn as a point. @param {uPlot} plot @param {number} line */
const isAlone = ({ data }, line) => Array.from(data[line]).filter((value) => value !== null).length === 1;

export class Plot {
  #value = h("strong");
  #none = h("p", { class: "plot-none", dir: "auto" }, t("Nothing yet."));
  #place = h("div", { class: "plot", dir: "ltr", "aria-hidden": "true" }, this.#none);
  /** @type {uPlot | null} */
  #plot = null;
  #figure;

  /** @param {Figure} figure */
  constructor(figure) {
    this.#figure = figure;
    const head = h("div", { class: "figure-head" }, h("h3", {}, figure.title), this.#value);
    this.element = h("section", { class: "figure" }, head, this.#place);
    new ResizeObserver(() => this.#plot?.setSize({ width: this.#place.clientWidth, height: HEIGHT })).observe(
      this.#place,
    );
  }

  /** Draws anew in the present colours. */
  reset() {
    this.#plot?.destroy();
    this.#plot = null;
  }

  /** @param {Sample[]} samples at least one */
  show(samples) {
    const rows = samples.map(this.#figure.values);
    const lines = rows[0].map((_, line) => rows.map((row) => row[line]));
    const times = samples.map(({ time }) => time / 1000);
    say(this.#value, this.#figure.text(samples[samples.length - 1]));
    const isEmpty = !lines.flat().some((value) => value !== null);
    this.#none.hidden = !isEmpty;
    if (isEmpty) return this.reset();
    this.#plot ??= this.#made(lines.length);
    this.#plot.setData(/** @type {any} */ ([times, ...lines]));
  }

  /** @param {number} lines */
  #made(lines) {
    const style = getComputedStyle(this.#place);
    const ink = style.color;
    const glow = style.getPropertyValue("outline-color");
    const { max, format } = this.#figure;
    const font = `11px ${style.fontFamily}`;
    const axis = { stroke: ink, font, grid: { stroke: style.borderTopColor, width: 1 }, ticks: { show: false } };
    const width = (/** @type {uPlot} */ { ctx }, /** @type {string[] | null} */ values) => {
      ctx.font = font;
      const widths = (values ?? []).map((value) => ctx.measureText(value).width);
      return Math.max(AXIS, ...widths.map((width) => Math.ceil(width) + GAP)); // units are long in some languages
    };
    return new uPlot(
      {
        width: this.#place.clientWidth,
        height: HEIGHT,
        legend: { show: false },
        cursor: { show: false },
        scales: { y: { range: (_, __, top) => [0, max ?? (top > 0 ? 1.1 * top : 1)] } },
        series: [
          {},
          { stroke: glow, width: 2, fill: style.backgroundColor, spanGaps: true, points: { show: isAlone } },
          ...Array.from({ length: lines - 1 }, () => ({
            stroke: ink,
            width: 1,
            dash: [4, 3],
            points: { show: isAlone },
          })),
        ],
        axes: [
          { ...axis, size: 22, space: 70, incrs: SECONDS, values: (_, times) => times.map(clock) },
          {
            ...axis,
            size: width,
            space: 26,
            values: (_, values) => values.map((value) => `${mark()}${format(value)}`),
          },
        ],
      },
      undefined,
      this.#place,
    );
  }
}
