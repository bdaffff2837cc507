/** @typedef {import("./connection.js").Connection} Connection */

/**
 * Offers this page's engine to the service worker (app/sw/api.js), which answers requests of all pages of the origin. The
 * service worker gets a port of its own to the engine's worker, so its requests bypass this page.
 * @param {() => Promise<{ connection: Connection, ready: Promise<void>, loaded: boolean }> | null} engine null
 *   while there is none; `ready` resolves when it takes requests
 */
export function startHosting(engine) {
  const container = globalThis.navigator?.serviceWorker;
  if (!container || !globalThis.document) return;
  container.addEventListener("message", async ({ data, ports: [reply, port], source }) => {
    if (data?.kind === "wisp.stay") source?.postMessage("stay"); // this is an event for the service worker; a message over a port is not
    if (data?.kind !== "wisp.api" || !port) return;
    try {
      const asked = engine();
      if (!asked) return reply.postMessage({ kind: "none" });
      reply.postMessage({ kind: "coming" });
      const found = await asked;
      reply.postMessage({ kind: "host", loaded: found.loaded });
      await found.ready;
      const { lock } = await found.connection.link;
      reply.postMessage({ kind: "ready", lock });
      found.connection.lend(port);
    } catch {
      reply.postMessage({ kind: "none" });
    }
  });
  container.startMessages();
}
