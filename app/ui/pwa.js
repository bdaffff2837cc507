/**
 * Registers the service worker. When a newer version has been fetched, a notice offers to reload: in all tabs, until each
 * has it.
 */
import { t } from "../language/phrase.js";
import { whenIdle } from "./dom.js";
import { notify } from "./notices.js";
import { answerFiles, partFiles } from "./parts.js";

const ISOLATING = "wisp.isolating"; // in the session: the page has been reloaded for it
const STAY_MS = 30_000; // a visit that is longer fetches what answers may need offline

/**
 * Reloads the page once where its host sends no headers for cross-origin isolation, and now the service worker does:
 * the CPU engine then has threads. Not if there is a GPU, and not once the user has begun.
 */
async function isolate() {
  if (globalThis.crossOriginIsolated || navigator.userActivation?.hasBeenActive) return;
  const adapter = await navigator.gpu?.requestAdapter();
  if ((adapter && !adapter.info?.isFallbackAdapter) || sessionStorage.getItem(ISOLATING)) return;
  sessionStorage.setItem(ISOLATING, "1");
  location.reload();
}

/**
 * Has the service worker cache parts of the page that it fetches only when they are used, such as diagrams. Not where the
 * browser is to save data, nor in a tab where it says that the network is mobile, as browsers on phones do.
 * @param {string[]} urls @param {{ mobile: boolean }} options
 */
async function cacheParts(urls, { mobile }) {
  const { saveData, type } = /** @type {any} */ (navigator).connection ?? {};
  if (saveData || (type === "cellular" && !mobile)) return;
  for (const url of urls) {
    if (!(await caches.match(url))) await fetch(url).catch(() => {}); // one after the other: nobody waits for them
  }
}

/** All but the many large wheels that only code in the sandbox imports: who installs the page expects it to work offline. */
const cacheAll = () => cacheParts(partFiles(), { mobile: true });

export async function startPwa() {
  if (!("serviceWorker" in navigator)) return;
  const { serviceWorker } = navigator;
  let hasOne = serviceWorker.controller !== null; // else a version that arrives is the page's own
  /** @type {ServiceWorkerRegistration} */
  let registration;
  try {
    registration = await serviceWorker.register("./sw.js", { updateViaCache: "none" });
  } catch {
    return; // not allowed in this browser: the page works, but not offline
  }
  addEventListener("appinstalled", cacheAll);
  const isInstalled = matchMedia("(display-mode: standalone)").matches;
  const cacheAhead = () => {
    if (isInstalled) whenIdle(cacheAll);
    else setTimeout(() => whenIdle(() => cacheParts(answerFiles(), { mobile: false })), STAY_MS);
  };
  if (hasOne) {
    cacheAhead(); // after a new version, too
    serviceWorker.controller?.postMessage("tidy");
  }
  let reloading = false;
  const offer = (/** @type {ServiceWorker} */ newer) => {
    const run = () => {
      if (newer.state !== "installed") return location.reload(); // another tab has had it take over
      reloading = true;
      newer.postMessage("take over");
    };
    notify({ key: "update", text: t("A newer Wisp is ready."), actions: [{ label: t("Reload"), run }] });
  };
  serviceWorker.addEventListener("controllerchange", () => {
    if (reloading) return location.reload();
    if (hasOne && serviceWorker.controller) return offer(serviceWorker.controller); // also where it was dismissed before
    hasOne = true;
    isolate();
    cacheAhead(); // iOS: also at the first start from the home screen, in a storage of its own
  });
  const watch = (/** @type {ServiceWorker | null} */ worker) => {
    worker?.addEventListener("statechange", () => worker.state === "installed" && hasOne && offer(worker));
  };
  if (registration.waiting && hasOne) offer(registration.waiting);
  watch(registration.installing);
  registration.addEventListener("updatefound", () => watch(registration.installing));
}
