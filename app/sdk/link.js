import { WispError } from "./error.js";

/**
 * @typedef {object} Link a connection to a worker
 * @property {MessagePort} port
 * @property {string | null} lock the Web Lock that the worker holds while it runs; null where there are no locks
 * @property {boolean} shared whether all tabs share it
 * @property {(reason: string) => void} [onerror] set by the user of the link; called when the worker fails
 * @property {() => void} end closes the link
 */

const HELLO_MS = [300, 600, 1_200, 2_500, 5_000, 10_000, 10_000]; // waits for a shared worker to answer, one after the other
/** Begins the names of the Web Locks that pages with an engine hold below an address. @param {string} address */
export const pageLock = (address) => `wisp.page ${address}`;
const PATIENCE = 3; // waits after which a worker without a lock counts as ended

/**
 * Connects to the worker of all tabs. Starts one of the page's own if no shared worker can run, or if it lacks WebGPU and
 * the page has it.
 * @param {string} url of the worker's module @param {string} name distinguishes versions of Wisp
 * @param {boolean} shared whether to use the worker of all tabs
 * @returns {Promise<Link>}
 */
export async function openLink(url, name, shared) {
  const held = await holdLock(pageLock(`${globalThis.location?.href}`.split(/[?#]/)[0]));
  return (shared && held.lock && (await openShared(url, name, held))) || openOwn(url, held);
}

/**
 * Holds a Web Lock, which shows others that this page or worker runs.
 * @param {string} prefix @returns {Promise<{ lock: string | null, release: () => void }>}
 */
export function holdLock(prefix) {
  const { locks } = navigator;
  const none = { lock: null, release() {} };
  if (!locks) return Promise.resolve(none);
  const lock = `${prefix}.${Date.now()}.${Math.random()}`;
  return new Promise((resolve) => {
    locks
      .request(lock, () => new Promise((over) => resolve({ lock, release: () => over(undefined) })))
      .catch(() => resolve(none)); // denied where the page may store nothing
  });
}

/**
 * Connects to the shared worker. A worker that has ended may stay registered, for example under developer tools, and never
 * answers; a busy one answers late. The lock distinguishes them: if none is held for a while, the next generation is
 * started under another name. Where the first one has not ended, but starts slowly, one of them answers, and the others end
 * (app/ports.js).
 * @param {string} url @param {string} name @param {{ lock: string | null, release: () => void }} held
 * @returns {Promise<Link | null>}
 */
async function openShared(url, name, held) {
  if (!globalThis.SharedWorker) return null;
  /** @type {MessagePort[]} */
  const ports = [];
  /** @type {(found: { port: MessagePort, hello: any } | null) => void} */
  let settle = () => {};
  const settled = new Promise((resolve) => (settle = resolve));
  let generation = 1;
  for (const [count, wait] of HELLO_MS.entries()) {
    generation = (await generationOf(name)) ?? (count < PATIENCE ? generation : generation + 1);
    try {
      const worker = new SharedWorker(url, { type: "module", name: `${name} #${generation}` });
      worker.onerror = () => settle(null); // its script did not load; the page's own worker reports why
      ports.push(worker.port);
    } catch {
      break; // shared workers are not allowed here
    }
    const port = /** @type {MessagePort} */ (ports.at(-1));
    port.onmessage = ({ data }) => settle({ port, hello: data });
    port.postMessage({ kind: "hello", lock: held.lock, page: true, several: true });
    const found = await Promise.race([settled, new Promise((resolve) => setTimeout(resolve, wait))]);
    if (found !== undefined) break;
  }
  settle(null);
  const found = await settled;
  const taken = found && (found.hello.gpu || !("gpu" in navigator)) ? found : null;
  for (const port of ports) {
    if (port === taken?.port) continue;
    port.postMessage({ kind: "leave" });
    port.close();
  }
  if (!taken) return null;
  const { port, hello } = taken;
  const end = () => (port.postMessage({ kind: "end" }), port.close(), held.release());
  return { port, lock: hello.lock, shared: true, end };
}

/** The generation of the running worker of that name; null if none runs. @param {string} name @returns {Promise<number | null>} */
async function generationOf(name) {
  const prefix = `wisp.engine ${name} #`;
  const { held = [] } = await navigator.locks.query();
  const generations = held.flatMap((lock) =>
    lock.name?.startsWith(prefix) ? parseInt(lock.name.slice(prefix.length)) : [],
  );
  return generations.length ? Math.min(...generations) : null;
}

/** @param {string} url @param {{ lock: string | null, release: () => void }} held @returns {Promise<Link>} */
function openOwn(url, held) {
  const worker = started(url, held);
  const { port1: port, port2 } = new MessageChannel();
  worker.postMessage({ port: port2 }, [port2]);
  port.postMessage({ kind: "hello", lock: held.lock, page: true, several: true });
  return new Promise((resolve, reject) => {
    const end = () => (worker.terminate(), port.close(), held.release());
    /** @type {Link} */
    const link = { port, lock: null, shared: false, end };
    worker.onerror = (event) => {
      event.preventDefault();
      const reason = event.message || "its script did not load";
      reject(event.message ? WispError.crashed(reason) : WispError.notStarted(url));
      if (link.onerror) link.onerror(reason);
      else end();
    };
    port.onmessage = ({ data }) => resolve(Object.assign(link, { lock: data.lock }));
  });
}

/**
 * Starts the page's own worker. Throws a WispError where the browser forbids that.
 * @param {string} url @param {{ release: () => void }} held
 */
function started(url, held) {
  try {
    return new Worker(url, { type: "module", name: "wisp" });
  } catch {
    held.release();
    throw WispError.notStarted(url);
  }
}
