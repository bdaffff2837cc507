/** Small plots. `plot`: speed by length; a dot per median, and a bar from the slowest to the fastest run. */

const WIDTH = 360;
const HEIGHT = 150;
const LEFT = 44;
const RIGHT = 16;
const TOP = 12;
const BOTTOM = 26;

/** @typedef {{ x: number, y: number, low: number, high: number }} Point */

/**
 * @param {string} tag @param {Record<string, string | number>} attributes @param {...(Node | string)} children
 * @returns {SVGElement}
 */
function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** @param {string} label text alternative @param {Point[]} points */
export function plot(label, points) {
  const top = ceiling(Math.max(...points.map(({ high }) => high)));
  const inner = WIDTH - LEFT - RIGHT;
  // Lengths differ by factors, so points are spaced evenly.
  const x = (/** @type {number} */ index) => LEFT + (inner * (index + 0.5)) / points.length;
  const y = (/** @type {number} */ value) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / top);
  const grid = [0, top / 2, top].flatMap((value) => [
    svg("line", { class: "plot-grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y(value), y2: y(value) }),
    svg("text", { class: "plot-y", x: LEFT - 8, y: y(value) + 4 }, short(value)),
  ]);
  const line = points.map((point, index) => `${index ? "L" : "M"}${x(index)} ${y(point.y)}`).join("");
  const marks = points.flatMap((point, index) => [
    svg("line", { class: "plot-range", x1: x(index), x2: x(index), y1: y(point.low), y2: y(point.high) }),
    svg("circle", { class: "plot-dot", cx: x(index), cy: y(point.y), r: 4 }),
    svg("text", { class: "plot-x", x: x(index), y: HEIGHT - 8 }, point.x.toLocaleString()),
  ]);
  return svg(
    "svg",
    { class: "plot", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": label },
    ...grid,
    svg("path", { class: "plot-line", d: line }),
    ...marks,
  );
}

/** A bar for a fraction; decorative, because the number is beside it. @param {number} part 0 to 1 */
export function bar(part) {
  const rect = svg("rect", { width: 100 * part, height: 10 });
  return svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, rect);
}

/** The next 1, 2, 4, 6, 8 or 10 times a power of ten, such that its half is round too. @param {number} value */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-3)));
  return power * ([1, 2, 4, 6, 8].find((factor) => factor * power >= value) ?? 10);
}

/** @param {number} value */
function short(value) {
  return value >= 10_000 ? `${value / 1000}k` : String(Number(value.toPrecision(3)));
}
