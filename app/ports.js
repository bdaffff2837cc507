/**
 * The worker's clients: pages, and service workers that a page lends a port to. Each has one MessagePort. Besides requests
 * and answers, a port carries
 *
 *   to the worker    "hello" {lock, page, several}: the Web Lock that the client holds while it runs; whether it is a page;
 *                    whether it reads several messages in one array (outbox.js)
 *                    "lend" {port}: also serve the client at the other end of that port
 *                    "leave": the client disconnects; "end": it does, and the engine may end if no other page is connected
 *                    "downloads" {port}: use the download worker at the other end of that port
 *                    "compute" {port, failure}: use the compute worker at the other end of that port; a message on
 *                    `failure` says why it does not work
 *   from the worker  "hello" {lock, gpu}: the Web Lock that the worker holds while it runs; whether it has WebGPU
 *                    "dead" {message}: why it ends now
 *                    "downloads": it needs a page's download workers
 *                    "decodeSound" {bytes, rate, answer}, "readPdf" {bytes, answer}, "readVideo" {bytes, fps, most, answer}: a page
 *                    reads the file, and posts {result} or {error} to the port; a message on the port stops it
 *                    "trial" {url, port, control}: a page starts a worker with that script, gives it the port, and ends
 *                    it at a message on `control`; it posts one there if the script does not load
 *                    "compute": it needs a compute worker of the page
 *
 * Locks report every end at once, including crashes. (Ports do not: Chromium has no "close" event on ports of shared workers.)
 * Where there are no locks (on a page from plain http, or one that may store nothing), the worker belongs to one page and ends with it.
 *
 * @typedef {{ greet: (hello: any) => void, receive: (message: any) => void, leave: () => void }} Served
 * @typedef {{ isLent: boolean, lend: (link: import("../py_engine/cpu/compute.js").Link) => void, lose: (reason: string) => void }} Lending
 */
const locks = globalThis.navigator.locks;
// Contains the worker's name: a page finds the running shared worker by it (app/sdk/link.js).
let lock = locks ? `wisp.engine ${self.name} ${Date.now()}.${Math.random()}` : null;
const forever = new Promise(() => {}); // referenced here, so that neither it nor the locks are collected

/**
 * Holds a Web Lock while the worker runs. False: another one has it.
 * @param {string} name @param {LockOptions} [options] @returns {Promise<boolean>}
 */
function hold(name, options = {}) {
  return new Promise((resolve, reject) => {
    locks.request(name, options, (held) => (resolve(held !== null), held && forever)).catch(reject);
  });
}

/**
 * Whether this worker may serve. Pages start the next generation of a shared worker where one does not answer for a while,
 * and may have started several before the first one's script has arrived: the first that runs serves all.
 */
async function begin() {
  if (!lock) return true;
  const [shared] = self.name.split(/ #\d+$/);
  try {
    if (shared !== self.name && !(await hold(`wisp.only ${shared}`, { ifAvailable: true }))) return false;
    return await hold(lock);
  } catch {
    lock = null; // denied where the page may store nothing
    return true;
  }
}

const serves = begin();
serves.then((serves) => serves || self.close());

export class Ports {
  /** @type {Map<MessagePort, boolean>} of every connected client -> whether it is a page */
  #clients = new Map();
  /** @type {Set<{ page: MessagePort, failed: (error: Error) => void }>} what pages were asked to do */
  #asked = new Set();
  #serve;
  #addDownloadWorker;
  /** @type {Map<MessagePort, Lending[]>} the requests for compute workers to each page, oldest first */
  #computing = new Map();

  /** @param {(port: MessagePort) => Served} serve @param {(port: MessagePort) => void} addDownloadWorker */
  constructor(serve, addDownloadWorker) {
    this.#serve = serve;
    this.#addDownloadWorker = addDownloadWorker;
  }

  /** The ports of the connected pages, in the order in which they came. */
  get #pagePorts() {
    return [...this.#clients].filter(([, isPage]) => isPage).map(([port]) => port);
  }

  /** Asks a page for download workers. */
  askForDownloadWorkers() {
    this.#pagePorts.at(0)?.postMessage({ kind: "downloads" });
  }

  /**
   * Lets a page read a file: decode sound to mono, since workers have no audio context; take pictures from a video, since
   * they have no video element; or extract the text of a PDF file, since its reader starts a worker.
   * @param {"decodeSound" | "readPdf" | "readVideo"} kind @param {Uint8Array} bytes of the file
   * @param {{ rate?: number, fps?: number, most?: number }} how samples of sound or pictures a second; most pictures
   * @param {AbortSignal} [signal] @returns {Promise<any>}
   */
  askToRead(kind, bytes, how, signal) {
    const page = this.#pagePorts.at(0);
    if (!page) return Promise.reject(new Error("no page is open"));
    const { port1, port2 } = new MessageChannel();
    return new Promise((resolve, failed) => {
      const asked = { page, failed };
      this.#asked.add(asked);
      port1.onmessage = ({ data }) => {
        this.#asked.delete(asked);
        if ("error" in data) failed(new Error(data.error));
        else resolve(data.result);
      };
      signal?.addEventListener("abort", () => this.#asked.delete(asked) && port1.postMessage("stop"), { once: true });
      page.postMessage({ kind, bytes, ...how, answer: port2 }, [port2, bytes.buffer]);
    });
  }

  /**
   * Has a page start a worker that tries a grammar; null where no page is open.
   * @param {string} url of its script @returns {import("./answers/grammar_trial.js").Trial | null}
   */
  startTrial(url) {
    const page = this.#pagePorts.at(0);
    if (!page) return null;
    const [work, control] = [new MessageChannel(), new MessageChannel()];
    /** @type {{ page: MessagePort, failed: (error: unknown) => void }} */
    const asked = { page, failed: () => {} };
    const failed = new Promise((resolve) => (asked.failed = control.port1.onmessage = resolve));
    this.#asked.add(asked);
    page.postMessage({ kind: "trial", url, port: work.port2, control: control.port2 }, [work.port2, control.port2]);
    const end = () => {
      this.#asked.delete(asked);
      control.port1.postMessage("end");
    };
    return { port: work.port1, end, failed };
  }

  /**
   * Asks a page for a compute worker, which ends with it. Prefers pages that lend none yet.
   * @returns {Promise<import("../py_engine/cpu/compute.js").Link>}
   */
  askForCompute() {
    const pages = this.#pagePorts;
    const page = pages.find((port) => !this.#computing.has(port)) ?? pages[0];
    if (!page) return Promise.reject(new Error("no page is open"));
    return new Promise((resolve) => {
      /** @type {(reason: string) => void} */
      let lost = () => {};
      /** @type {Promise<string>} */
      const ended = new Promise((ends) => (lost = ends));
      /** @type {Lending} */
      const lending = {
        isLent: false,
        lend(link) {
          lending.isLent = true;
          resolve({ ...link, ended: Promise.race([ended, link.ended]) });
        },
        lose: (reason) => {
          lost(reason);
          if (!lending.isLent) resolve(this.askForCompute());
        },
      };
      this.#computing.set(page, [...(this.#computing.get(page) ?? []), lending]);
      page.postMessage({ kind: "compute" });
    });
  }

  /** @param {MessagePort} port of a client that has not sent "hello" yet */
  add(port) {
    const served = this.#serve(port);
    const leave = () => {
      if (!this.#clients.delete(port)) return;
      const lendings = this.#computing.get(port) ?? [];
      this.#computing.delete(port);
      for (const { lose } of lendings) lose("its tab was closed");
      port.close();
      for (const { page, failed } of this.#asked) if (page === port) failed(new Error("its page was closed"));
      served.leave();
    };
    port.onmessage = async ({ data }) => {
      if (data.kind === "lend") this.add(data.port);
      else if (data.kind === "downloads") this.#addDownloadWorker(data.port);
      else if (data.kind === "compute") {
        /** @type {Promise<string>} */
        const ended = new Promise(
          (resolve) => (data.failure.onmessage = (/** @type {MessageEvent} */ event) => resolve(event.data)),
        );
        const asked = this.#computing.get(port)?.find(({ isLent }) => !isLent);
        asked?.lend({ port: data.port, ended, close: () => data.port.close() });
      } else if (data.kind === "leave") leave();
      else if (data.kind === "end") {
        leave();
        if (!this.#pagePorts.length) self.close();
      } else if (data.kind === "hello") {
        this.#clients.set(port, data.page === true);
        served.greet(data);
        if (data.lock) locks.request(data.lock, leave);
        if (!(await serves)) return;
        port.postMessage({ kind: "hello", lock, gpu: "gpu" in navigator });
      } else if (this.#clients.has(port)) served.receive(data);
    };
  }

  /** Ends the worker. @param {string} message why */
  die(message) {
    for (const port of this.#clients.keys()) port.postMessage({ kind: "dead", message });
    self.close();
  }
}
