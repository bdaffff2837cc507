/** bench.html: runs the measurements of the form and shows the results as they arrive. */
import { byId } from "../app/ui/dom.js";
import { startTheme } from "../app/ui/theme.js";
import { Wisp } from "../app/wisp.js";
import { bench } from "./bench.js";
import { figures } from "./figures.js";
import { lock, offer, readForm, startForm } from "./form.js";

/**
 * @typedef {import("./bench.js").Result} Result
 * @typedef {import("./bench.js").Row} Row
 */

const status = byId("status");
const bar = /** @type {HTMLProgressElement} */ (byId("bar"));
/** @type {Record<string, string>} */
const STAGES = {
  pyodide: "Starting Python",
  packages: "Starting Python",
  python: "Starting Python",
  download: "Downloading the model",
  cache: "Reading the model",
  hash: "Checking the model",
  upload: "Uploading the weights",
  compile: "Compiling kernels",
  tune: "Choosing the fastest kernels",
};

/** @type {AbortController | null} of the running measurement */
let running = null;
/** @type {Result | null} */
let shown = null;

startTheme();
startForm();
const booted = Wisp.create({
  onProgress: ({ stage }) => running && STAGES[stage] && say("busy", STAGES[stage]),
  shared: false, // an engine of its own: no requests of other tabs, and the finer clock of an isolated page
});
booted.then(async (wisp) => offer((await wisp.models.list()).data)).catch((error) => say("failed", error.message));

/** @param {"idle" | "busy" | "done" | "failed"} state @param {string} text */
function say(state, text) {
  status.dataset.state = state;
  status.textContent = text;
}

/** @param {Result} result */
function show(result) {
  shown = result;
  byId("results").hidden = false;
  const open = new Set([...document.querySelectorAll("details[open] summary")].map((summary) => summary.textContent));
  byId("figures").replaceChildren(...figures(result));
  for (const details of document.querySelectorAll("details")) {
    details.open = open.has(details.querySelector("summary")?.textContent ?? "");
  }
}

/** Runs the measurements of the form. @param {(row: Row) => void} [onRow] @returns {Promise<Result>} */
async function run(onRow) {
  const options = readForm();
  if (!options) throw new Error("The marked field needs another value.");
  const { prompts = [], contexts = [], profilePrompts = [] } = options;
  const rows = 1 + prompts.length + contexts.length + contexts.length + profilePrompts.length + (options.text ? 1 : 0);
  const onChunk = (/** @type {number} */ done, /** @type {number} */ total) =>
    say("busy", `Perplexity: ${done} of ${total} chunks`);
  let count = 0;
  running = new AbortController();
  lock(true);
  say("busy", "Starting Python");
  bar.value = 0;
  bar.hidden = false;
  try {
    const wisp = await Wisp.create({ shared: false }); // starts again after a crash
    const result = await bench(wisp, { ...options, onChunk, signal: running.signal }, (row, soFar) => {
      bar.value = ++count / rows;
      say("busy", `Measured: ${row.what}`);
      show(soFar);
      onRow?.(row);
    });
    show(result);
    say("done", "Done.");
    return result;
  } finally {
    running = null;
    lock(false);
    bar.hidden = true;
  }
}

/** @param {any} error */
function failed(error) {
  const stopped = error?.code === "aborted" || error?.name === "AbortError";
  say(stopped ? "idle" : "failed", stopped ? "Stopped." : error?.message || String(error));
}

byId("bench-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (!running) run().catch(failed);
});
byId("stop").onclick = () => {
  say("busy", "Stopping");
  running?.abort();
};

const json = () => `${JSON.stringify(shown, null, 2)}\n`;
byId("copy").onclick = async () => {
  const ok = await navigator.clipboard.writeText(json()).then(
    () => true,
    () => false,
  );
  say(status.dataset.state === "busy" ? "busy" : "done", ok ? "Copied." : "The browser did not allow copying.");
};
byId("download").onclick = () => {
  const url = URL.createObjectURL(new Blob([json()], { type: "application/json" }));
  const link = Object.assign(document.createElement("a"), { href: url, download: `wisp-bench-${shown?.model}.json` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
};

/** For `build.py bench`, which drives this page. */
Object.assign(globalThis, { wispBench: run });
