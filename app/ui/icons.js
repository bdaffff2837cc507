/** Icons as strokes on a 24-unit square. */
const PATHS = /** @type {Record<string, string>} */ ({
  plus: "M12 5v14M5 12h14",
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 7h16M4 12h16M4 17h10",
  compose: "M12 5H7a3 3 0 0 0-3 3v9a3 3 0 0 0 3 3h9a3 3 0 0 0 3-3v-5M10 14l1-3.5L18.5 3l2.5 2.5L13.5 13z",
  sliders:
    "M4 8h8.5M17.5 8H20M4 16h2.5M11.5 16H20M12.5 8a2.5 2.5 0 1 0 5 0 2.5 2.5 0 1 0-5 0M6.5 16a2.5 2.5 0 1 0 5 0 2.5 2.5 0 1 0-5 0",
  send: "M12 19V5.5M6 11.5l6-6 6 6",
  stop: "M8 8h8v8H8z",
  copy: "M9 9h10v11H9zM15 9V4H5v11h4",
  check: "M5 12.5l4.5 4.5L19 7.5",
  forward: "M5 5l8 7-8 7zM18 5v14",
  again: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4h-4",
  edit: "M5 19l1-4L16.5 4.5l3 3L9 18z",
  trash: "M5 7h14M10 7V4.5h4V7M7 7l1 12.5h8L17 7",
  sun: "M12 8.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M12 3v2M12 19v2M3 12h2M19 12h2M5.6 5.6L7 7M17 17l1.4 1.4M18.4 5.6L17 7M7 17l-1.4 1.4",
  moon: "M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z",
  auto: "M12 4a8 8 0 1 0 0 16V4M12 4a8 8 0 0 1 0 16",
  file: "M13.5 3.5H7v17h10V7zM13.5 3.5V7H17",
  away: "M8 16L18 6M10 6h8v8",
  pause: "M9 6v12M15 6v12",
  play: "M8.5 5.5l9.5 6.5-9.5 6.5z",
  first: "M6 5h12M12 20V9M7 13.5l5-5 5 5",
  fetch: "M12 4v10.5M7.5 10.5L12 15l4.5-4.5M5 19h14",
  camera: "M4 8h3.5L9 5.5h6L16.5 8H20v11H4zM12 10.2a3.3 3.3 0 1 0 0 6.6 3.3 3.3 0 0 0 0-6.6",
  microphone:
    "M12 3.5a2.5 2.5 0 0 0-2.5 2.5v5a2.5 2.5 0 1 0 5 0V6A2.5 2.5 0 0 0 12 3.5M6.5 11a5.5 5.5 0 1 0 11 0M12 16.5V20",
  pin: "M9 4h6M10 4v6l-3 3.5h10L14 10V4M12 13.5V20",
  search: "M10.5 4.5a6 6 0 1 0 0 12 6 6 0 0 0 0-12M15 15l5 5",
  documents: "M9 3.5h6.5L19 7v10H9zM15 3.5V7.5h4M9 7H5v13.5h10V17",
  swap: "M7 4L3.5 7.5 7 11M3.5 7.5H20M17 13l3.5 3.5L17 20M20.5 16.5H4",
  left: "M14.5 6l-6 6 6 6",
  right: "M9.5 6l6 6-6 6",
  more: "M5 12a.6 .6 0 1 0 1.2 0 .6 .6 0 1 0-1.2 0M11.4 12a.6 .6 0 1 0 1.2 0 .6 .6 0 1 0-1.2 0M17.8 12a.6 .6 0 1 0 1.2 0 .6 .6 0 1 0-1.2 0",
  folder: "M3.5 6.5h6l2 2.5h9v9.5h-17z",
  hide: "M4 4l16 16M9.5 6A9 9 0 0 1 21 12a13 13 0 0 1-2.6 3.2M6.3 7.6A13 13 0 0 0 3 12a9.5 9.5 0 0 0 12 5.3",
  person: "M12 4.5a3.5 3.5 0 1 0 0 7 3.5 3.5 0 0 0 0-7M5 19.5c.6-3.6 3.4-5.5 7-5.5s6.4 1.9 7 5.5",
  tools:
    "M14.5 6.5a4 4 0 0 1 5.2-1.6L17 7.6l1.4 1.4 2.7-2.7a4 4 0 0 1-5.3 5.3L9 18.4a2 2 0 0 1-2.9-2.9l6.8-6.8a4 4 0 0 1 1.6-2.2",
  columns: "M4 5h7v14H4zM13 5h7v14h-7z",
  down: "M12 5.5v13M6.5 13l5.5 5.5 5.5-5.5",
  pulse: "M3 13h4l3-8 4 14 3-6h4",
  words: "M4 8h5M12 8h8M4 15.5h9M16 15.5h4M4 19h9",
  expand: "M9 4H4v5M15 4h5v5M9 20H4v-5M15 20h5v-5",
  keyboard: "M3 6.5h18v11H3zM7 10v.2M10.5 10v.2M14 10v.2M17 10v.2M8 14h8",
  info: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16M12 11v5M12 8v.2",
  warning: "M12 4.5L3.5 19h17zM12 10v4.5M12 16.6v.2",
});

const TURNS = new Set(["left", "right", "forward", "menu", "words", "sliders"]); // with the direction of the language

/** @param {string} name @returns {SVGSVGElement} */
export function icon(name) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.setAttribute("class", TURNS.has(name) ? "icon turns" : "icon");
  path.setAttribute("d", PATHS[name] ?? "");
  svg.append(path);
  return svg;
}
