/**
 * Fetches the model that the user is likely to choose next: only if that is switched on, while nobody uses the page, and on
 * a link that costs nothing by the byte. It goes through the download queue, where the user sees and can stop it.
 */
import { nextModel } from "../hub/next.js";
import { t } from "../language/phrase.js";
import { isText, storedList } from "../storage/local_json.js";
import { h } from "./dom.js";

const TEXTS = {
  label: t("Fetch the next model ahead"),
  about: t("the one you looked at, or a larger good one: while you are away, on an unmetered link"),
};

const KEY = "wisp.prefetch"; // "on"
const FETCHED = "wisp.prefetch.last"; // addresses of the last one, until it is used
const IDLE_MS = 60_000; // without input
const CHECK_MS = 10_000;
const FREE = ["ethernet", "wifi"];

/** @typedef {{ saveData?: boolean, type?: string, effectiveType?: string }} Connection of the Network Information API */

/**
 * Whether a link is known to cost nothing by the byte. Desktop browsers do not tell its type, but that it is fast.
 * @param {Connection | undefined} connection undefined: the browser does not tell
 */
export function isUnmetered(connection) {
  if (!connection || connection.saveData) return false;
  const { type = "unknown", effectiveType } = connection;
  return type === "unknown" ? effectiveType === "4g" : FREE.includes(type);
}

/**
 * @param {object} page
 * @param {() => Promise<import("../wisp.js").Wisp>} page.wisp
 * @param {() => boolean} page.busy whether a model is being loaded, or answers
 */
export function startPrefetch({ wisp, busy }) {
  const checkbox = h("input", { type: "checkbox", checked: localStorage.getItem(KEY) === "on" });
  const label = h("label", { class: "check" }, checkbox, h("span", {}, TEXTS.label, h("small", {}, TEXTS.about)));
  document.getElementById("explore-words")?.closest("label")?.after(label);
  label.addEventListener("input", (event) => event.stopPropagation()); // no setting of requests
  checkbox.onchange = () => {
    localStorage.setItem(KEY, checkbox.checked ? "on" : "off");
    void check();
  };

  let active = Date.now();
  /** @type {string | null} the download that this page has started, and pauses while the page is used */
  let download = null;
  let paused = false;
  /** @type {AbortController | null} of the choice in progress */
  let choosing = null;

  const may = () => checkbox.checked && navigator.onLine && isUnmetered(/** @type {any} */ (navigator).connection);
  const idle = () => Date.now() - active >= IDLE_MS && !busy();

  /** Starts, pauses or resumes as the page and the link allow. */
  async function check() {
    const now = may() && idle();
    if (!now) choosing?.abort();
    if (choosing) return;
    const { downloads } = await wisp();
    if (download && now === paused) {
      paused = !now;
      await (paused ? downloads.pause(download) : downloads.resume(download)).catch(() => (download = null));
    } else if (now && !download && localStorage.getItem(FETCHED) === null) {
      await start(downloads);
    }
  }

  /** @param {import("../wisp.js").Wisp["downloads"]} downloads */
  async function start(downloads) {
    if ((await downloads.list()).some(({ state }) => state === "running" || state === "queued")) return;
    choosing = new AbortController();
    try {
      const { signal } = choosing;
      const found = await nextModel(await wisp(), signal);
      if (!found || signal.aborted) return;
      const { name, urls, sha256 } = found.file;
      const model = urls.length > 1 ? urls : urls[0];
      download = (await downloads.add({ model, name, sha256: sha256 ?? undefined })).id;
      paused = false;
      localStorage.setItem(FETCHED, JSON.stringify(urls));
    } catch {
      active = Date.now(); // the hub does not answer: ask again later
    } finally {
      choosing = null;
    }
  }

  const used = () => {
    active = Date.now();
    if ((download && !paused) || choosing) void check();
  };
  for (const kind of ["pointerdown", "keydown", "wheel"]) addEventListener(kind, used, { passive: true });
  /** @type {any} */ (navigator).connection?.addEventListener?.("change", () => void check());
  setInterval(() => checkbox.checked && void check(), CHECK_MS);

  return {
    /** A model answers: once the fetched one does, another may be fetched. @param {string | string[] | undefined} address */
    loaded(address) {
      const fetched = storedList(FETCHED, isText);
      if ([address].flat().some((url) => isText(url) && fetched.includes(url))) localStorage.removeItem(FETCHED);
    },
  };
}
