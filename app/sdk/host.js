/** @typedef {import("./connection.js").Connection} Connection */

/**
 * Lets the service worker (app/sw/api.js) ask the engine of this page, so that it can answer requests of all the
 * origin's pages. It gets a port of its own to the engine's worker: this page has no part in what it asks there.
 * @param {() => Promise<{ connection: Connection, loaded: boolean }> | null} engine null while there is none
 */
export function startHosting(engine) {
  const container = globalThis.navigator?.serviceWorker;
  if (!container || !globalThis.document) return;
  container.addEventListener("message", async ({ data, ports: [reply, port], source }) => {
    if (data?.kind === "wisp.stay") source?.postMessage("stay"); // an event: what goes over a port is none
    if (data?.kind !== "wisp.api" || !port) return;
    try {
      const found = await engine();
      if (!found) return reply.postMessage({ kind: "none" });
      const { lock } = await found.connection.link;
      reply.postMessage({ kind: "host", lock, loaded: found.loaded });
      found.connection.lend(port);
    } catch {
      reply.postMessage({ kind: "none" });
    }
  });
  container.startMessages();
}
