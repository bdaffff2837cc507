/**
 * Whom the worker serves: pages, and service workers that pages lend it to, over one MessagePort each. Beside requests
 * and their answers, over a port go
 *
 *   to the worker   "hello" {lock, page}: the Web Lock that the client holds for as long as it lives; is it a page?
 *                   "lend" {port}: serve the one behind that port, too
 *                   "leave": the client needs nothing more; "end": and if no other page is left, the engine may end
 *   from it         "hello" {lock, gpu}: the Web Lock that the worker holds for as long as it lives; is WebGPU there?
 *                   "dead" {message}: why it ends now
 *
 * Locks tell of every end, a crash too, and at once. (Ports do not: Chromium has no "close" event on those of shared
 * workers.) Where there are none, on a page that came over plain http, the worker is the page's own and dies with it.
 *
 * @typedef {{ receive: (message: any) => void, leave: () => void }} Served
 */
const locks = globalThis.navigator.locks;
// By the worker's name in it, a page finds the shared worker that lives (app/sdk/link.js).
const lock = locks ? `wisp.engine ${self.name} ${Date.now()}.${Math.random()}` : null;
const forever = new Promise(() => {}); // kept here, so that it is not collected and the lock with it
const alive = new Promise((resolve) => {
  if (!lock) return resolve(undefined);
  locks.request(lock, () => (resolve(undefined), forever));
});

export class Ports {
  /** @type {Map<MessagePort, boolean>} of every client that is there, whether it is a page */
  #pages = new Map();
  #serve;

  /** @param {(port: MessagePort) => Served} serve */
  constructor(serve) {
    this.#serve = serve;
  }

  /** @param {MessagePort} port of a client that has yet to say "hello" */
  add(port) {
    const served = this.#serve(port);
    const leave = () => {
      if (!this.#pages.delete(port)) return;
      port.close();
      served.leave();
    };
    port.onmessage = async ({ data }) => {
      if (data.kind === "lend") this.add(data.port);
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
