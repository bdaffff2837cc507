import { WispError } from "./error.js";

/**
 * @typedef {object} Link the way to a worker
 * @property {MessagePort} port
 * @property {string | null} lock the Web Lock that the worker holds as long as it lives; null where there are no locks
 * @property {boolean} shared whether it is that of all tabs
 * @property {(reason: string) => void} [onerror] set by who uses the link: the worker has failed
 * @property {() => void} end gives the link up
 */

const HELLO_MS = [300, 600, 1_200, 2_500, 5_000, 10_000, 10_000]; // for a shared worker to answer, time after time
const PATIENCE = 3; // times, until one that holds no lock is taken for ended

/**
 * The worker of all tabs; where there cannot be one, or none with the WebGPU that the page has, the page's own.
 * @param {string} url of the worker's module @param {string} name tells versions of Wisp apart
 * @param {boolean} shared whether the worker of all tabs is wanted
 * @returns {Promise<Link>}
 */
export async function openLink(url, name, shared) {
  const life = await holdLock("wisp.page");
  return (shared && life.lock && (await openShared(url, name, life))) || openOwn(url, life);
}

/**
 * Holds a Web Lock that tells others that this page or worker lives.
 * @param {string} prefix @returns {Promise<{ lock: string | null, release: () => void }>}
 */
export function holdLock(prefix) {
  const { locks } = navigator;
  if (!locks) return Promise.resolve({ lock: null, release() {} });
  const lock = `${prefix}.${Date.now()}.${Math.random()}`;
  return new Promise((resolve) => {
    locks.request(lock, () => new Promise((over) => resolve({ lock, release: () => over(undefined) })));
  });
}

/**
 * A worker that has ended may linger (while somebody looks at it with developer tools, say): whoever connects to it gets
 * no answer. One that is busy answers late. The lock tells them apart, so where none is held for a while, the next
 * generation is started under another name.
 * @param {string} url @param {string} name @param {{ lock: string | null, release: () => void }} life
 * @returns {Promise<Link | null>}
 */
async function openShared(url, name, life) {
  if (!globalThis.SharedWorker) return null;
  /** @type {MessagePort[]} */
  const ports = [];
  /** @type {(found: { port: MessagePort, hello: any } | null) => void} */
  let settle = () => {};
  const settled = new Promise((resolve) => (settle = resolve));
  let generation = (await generationOf(name)) ?? 1;
  for (const [count, wait] of HELLO_MS.entries()) {
    if (count >= PATIENCE) generation = (await generationOf(name)) ?? generation + 1;
    try {
      const worker = new SharedWorker(url, { type: "module", name: `${name} #${generation}` });
      worker.onerror = () => settle(null); // its script did not load, or may not: the page's own worker says why
      ports.push(worker.port);
    } catch {
      break; // not allowed here
    }
    const port = /** @type {MessagePort} */ (ports.at(-1));
    port.onmessage = ({ data }) => settle({ port, hello: data });
    port.postMessage({ kind: "hello", lock: life.lock, page: true });
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
  const end = () => (port.postMessage({ kind: "end" }), port.close(), life.release());
  return { port, lock: hello.lock, shared: true, end };
}

/** Of the living worker of that name, null where there is none. @param {string} name @returns {Promise<number | null>} */
async function generationOf(name) {
  const prefix = `wisp.engine ${name} #`;
  const { held = [] } = await navigator.locks.query();
  const generations = held.flatMap((lock) =>
    lock.name?.startsWith(prefix) ? parseInt(lock.name.slice(prefix.length)) : [],
  );
  return generations.length ? Math.min(...generations) : null;
}

/** @param {string} url @param {{ lock: string | null, release: () => void }} life @returns {Promise<Link>} */
function openOwn(url, life) {
  const worker = new Worker(url, { type: "module", name: "wisp" });
  const { port1: port, port2 } = new MessageChannel();
  worker.postMessage({ port: port2 }, [port2]);
  port.postMessage({ kind: "hello", lock: life.lock, page: true });
  return new Promise((resolve, reject) => {
    const end = () => (worker.terminate(), port.close(), life.release());
    /** @type {Link} */
    const link = { port, lock: null, shared: false, end };
    worker.onerror = (event) => {
      event.preventDefault();
      const reason = event.message || "its script did not load";
      reject(WispError.crashed(reason));
      if (link.onerror) link.onerror(reason);
      else end();
    };
    port.onmessage = ({ data }) => resolve(Object.assign(link, { lock: data.lock }));
  });
}
