/** @typedef {import("./connection.js").Connection} Connection */

/**
 * Lets the service worker (app/sw/api.js) ask the engine of this page, so that it can answer requests of all the
 * origin's pages. It gets a port of its own to the engine's worker: this page has no part in what it asks there.
 * @param {() => Promise<{ connection: Connection, ready: Promise<void> | null, loaded: boolean }> | null} engine null
 *   while there is none; `ready` when it can be asked
 */
export function startHosting(engine) {
  const container = globalThis.navigator?.serviceWorker;
  if (!container || !globalThis.document) return;
  container.addEventListener("message", async ({ data, ports: [reply, port], source }) => {
    if (data?.kind === "wisp.stay") source?.postMessage("stay"); // an event: what goes over a port is none
    if (data?.kind !== "wisp.api" || !port) return;
    try {
      const asked = engine();
      if (!asked) return reply.postMessage({ kind: "none" });
      reply.postMessage({ kind: "coming" });
      const found = await asked;
      const { lock } = await found.connection.link;
      reply.postMessage({ kind: "host", lock, loaded: found.loaded });
      await found.ready;
      found.connection.lend(port);
    } catch {
      reply.postMessage({ kind: "none" });
    }
  });
  container.startMessages();
}
