import { Reply } from "./reply.js";

/** @typedef {import("../wisp.js").Wisp} Wisp */

const KEEP_ALIVE_MS = 10_000; // a service worker without events is stopped after 30 s
const SILENT_MS = 15_000; // the service worker pings every second; when it was stopped, nobody reads the answer

/**
 * Offers this page's engine to the service worker (app/sw/api.js), which answers requests of all the origin's pages
 * with it.
 * @param {() => Promise<Wisp> | null} engine null while there is none
 * @param {() => boolean} loaded whether a model can answer
 */
export function startHosting(engine, loaded) {
  const container = globalThis.navigator?.serviceWorker;
  if (!container || !globalThis.document) return;
  container.addEventListener("message", ({ data, ports: [port], source }) => {
    if (data?.kind !== "wisp.api" || !port) return;
    const current = engine();
    port.onmessage = ({ data: asked }) => current && asked.kind === "request" && serve(current, asked, port, source);
    port.postMessage({ kind: current ? "host" : "none", loaded: current !== null && loaded() });
  });
  container.startMessages();
}

/**
 * @param {Promise<Wisp>} engine @param {import("./reply.js").Asked} asked @param {MessagePort} port
 * @param {MessageEventSource | null} serviceWorker
 */
function serve(engine, asked, port, serviceWorker) {
  let heard = Date.now();
  let told = heard;
  const over = () => {
    clearInterval(timer);
    port.close();
  };
  const reply = new Reply(
    () => engine,
    asked,
    (part) => {
      port.postMessage(part);
      if (part.kind === "end") over();
    },
  );
  const abort = () => {
    reply.abort();
    over();
  };
  const timer = setInterval(() => {
    if (Date.now() - heard > SILENT_MS) return abort();
    if (Date.now() - told < KEEP_ALIVE_MS) return;
    told = Date.now();
    serviceWorker?.postMessage("stay"); // an event: what goes over the port is none
  }, 1_000);
  port.addEventListener("close", abort);
  port.onmessage = ({ data }) => {
    heard = Date.now();
    if (data.kind === "pull") reply.pull();
    if (data.kind === "ping") port.postMessage({ kind: "pong" });
    if (data.kind === "abort") abort();
  };
}
