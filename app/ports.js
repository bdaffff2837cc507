/**
 * The worker's clients: pages, and service workers that a page lends a port to. Each has one MessagePort. Besides requests
 * and answers, a port carries
 *
 *   to the worker    "hello" {lock, page}: the Web Lock that the client holds while it runs; whether it is a page
 *                    "lend" {port}: also serve the client at the other end of that port
 *                    "leave": the client disconnects; "end": it does, and the engine may end if no other page is connected
 *                    "downloads" {port}: use the download worker at the other end of that port
 *   from the worker  "hello" {lock, gpu}: the Web Lock that the worker holds while it runs; whether it has WebGPU
 *                    "dead" {message}: why it ends now
 *                    "downloads": it needs a page's download workers
 *
 * Locks report every end at once, including crashes. (Ports do not: Chromium has no "close" event on ports of shared workers.)
 * Where there are no locks (on a page from plain http), the worker belongs to one page and ends with it.
 *
 * @typedef {{ receive: (message: any) => void, leave: () => void }} Served
 */
const locks = globalThis.navigator.locks;
// Contains the worker's name: a page finds the running shared worker by it (app/sdk/link.js).
const lock = locks ? `wisp.engine ${self.name} ${Date.now()}.${Math.random()}` : null;
const forever = new Promise(() => {}); // referenced here, so that neither it nor the lock is collected
const alive = new Promise((resolve) => {
  if (!lock) return resolve(undefined);
  locks.request(lock, () => (resolve(undefined), forever));
});

export class Ports {
  /** @type {Map<MessagePort, boolean>} of every connected client -> whether it is a page */
  #pages = new Map();
  #serve;
  #addDownloadWorker;

  /** @param {(port: MessagePort) => Served} serve @param {(port: MessagePort) => void} addDownloadWorker */
  constructor(serve, addDownloadWorker) {
    this.#serve = serve;
    this.#addDownloadWorker = addDownloadWorker;
  }

  /** Asks a page for download workers. */
  askForDownloadWorkers() {
    const page = [...this.#pages].find(([, isPage]) => isPage);
    page?.[0].postMessage({ kind: "downloads" });
  }

  /** @param {MessagePort} port of a client that has not sent "hello" yet */
  add(port) {
    const served = this.#serve(port);
    const leave = () => {
      if (!this.#pages.delete(port)) return;
      port.close();
      served.leave();
    };
    port.onmessage = async ({ data }) => {
      if (data.kind === "lend") this.add(data.port);
      else if (data.kind === "downloads") this.#addDownloadWorker(data.port);
      else if (data.kind === "leave") leave();
      else if (data.kind === "end") {
        leave();
        if (![...this.#pages.values()].includes(true)) self.close();
      } else if (data.kind === "hello") {
        this.#pages.set(port, data.page === true);
        if (data.lock) locks.request(data.lock, leave);
        await alive;
        port.postMessage({ kind: "hello", lock, gpu: "gpu" in navigator });
      } else if (this.#pages.has(port)) served.receive(data);
    };
  }

  /** Ends the worker. @param {string} message why */
  die(message) {
    for (const port of this.#pages.keys()) port.postMessage({ kind: "dead", message });
    self.close();
  }
}
