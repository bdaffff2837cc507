/**
 * Packages of an index for the sandbox's Python: the page fetches them where the user allows it, and stores them for use
 * without a network.
 */
import { t } from "../language/phrase.js";
import { partUrl } from "../ui/parts.js";
import { resolver } from "./resolver.js";
import { wheel } from "./sandbox/sandbox.js";

/**
 * @typedef {import("./registry.js").ToolFile} ToolFile
 * @typedef {ToolFile & { url: string }} Fetched
 */

export const PYPI = "https://pypi.org/simple";
const PYPI_FILES = "files.pythonhosted.org"; // what PyPI's pages link to
const STORE = "wisp-sandbox-packages"; // in Cache Storage: how the store's name begins
const ACCEPT = "application/vnd.pypi.simple.v1+json, */*;q=0.01";
const SECONDS = 600; // for all downloads
const BYTES = 100e6; // of all downloads
const NAMES = 10; // a call
const NAME = /^(?=.{1,100}$)[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?([=<>!~]=?[\w.*+!<>=~,-]+)?$/;

/** Whether Python may ask for packages of an index; each fetch is still asked for. */
export const packagesAllowed = () => localStorage.getItem("wisp.tools.packages") === "ask";

/** Without it, what is stored is deleted. @param {boolean} allowed */
export function allowPackages(allowed) {
  if (allowed) localStorage.setItem("wisp.tools.packages", "ask");
  else localStorage.removeItem("wisp.tools.packages");
  if (!allowed) deleteStores().catch(() => {});
}

/**
 * The names that a call asks for, each once. Throws an error for the model.
 * @param {unknown} requested names, perhaps with versions @returns {string[]}
 */
export function packageNames(requested) {
  const names = requested ?? [];
  if (!Array.isArray(names) || names.length > NAMES) throw new Error(`packages is a list of at most ${NAMES} names.`);
  const wrong = names.find((name) => typeof name !== "string" || !NAME.test(name));
  if (wrong !== undefined) {
    const shown = JSON.stringify(wrong).slice(0, 100);
    throw new Error(`packages has names of PyPI, such as "humanize" or "humanize==4.9.0", not ${shown}.`);
  }
  return [...new Set(names)].sort();
}

/**
 * The wheels of packages and of what they need and the sandbox lacks: those that are stored, else those of the index, if
 * the user confirms. Rejects with an error for the model.
 * @param {string[]} names of packageNames()
 * @param {{ index: string, signal: AbortSignal, isPrivate?: boolean, confirm?: (question: string) => Promise<boolean> }} options
 *   `isPrivate`: nothing is stored
 * @returns {Promise<ToolFile[]>}
 */
export async function wheelsOf(names, { index, signal, isPrivate = false, confirm }) {
  const key = `${index}/?wisp-packages=${encodeURIComponent(names.join(" "))}`;
  const store = await openStore().catch(() => undefined);
  const found = await storedWheels(key, store);
  if (found) return found;
  const hosts = index === PYPI ? [new URL(PYPI).host, PYPI_FILES] : [new URL(index).host];
  const values = { packages: names.join(", "), hosts: hosts.join(", ") };
  const question = t("Fetch {packages} and what they need from {hosts}? These servers learn the names.", values);
  if (!(await confirm?.(`${question}`)))
    throw new Error("The user did not allow these packages to be fetched. Go on without them.");
  const wheels = await resolved(names, { index, hosts, signal, isPrivate });
  if (!isPrivate) await storeWheels(key, wheels, store).catch(() => {}); // without space, they are fetched again
  return wheels;
}

/**
 * Asks an index.
 * @param {string[]} names @param {{ index: string, hosts: string[], signal: AbortSignal, isPrivate: boolean }} options
 */
async function resolved(names, { index, hosts, signal, isPrivate }) {
  const cache = isPrivate ? "no-store" : "default";
  /** @type {Map<string, Fetched & { type: string | undefined }>} by address */
  const fetched = new Map();
  const budget = { bytes: BYTES };
  const supply = async (/** @type {unknown} */ name) => {
    if (!/^https?:/.test(`${name}`)) return wheel(name);
    const url = new URL(`${name}`);
    if (!hosts.includes(url.host)) return { data: null, why: `${url.host} is no server of this index`, status: 403 };
    const known = fetched.get(url.href); // two packages may need this one, and micropip asks for each
    if (known) return { data: await known.blob.arrayBuffer(), why: "", type: known.type, status: 200 };
    const answer = await fetchedFrom(url, { signal, cache, budget });
    if (answer.data) {
      const file = decodeURIComponent(url.pathname.split("/").at(-1) ?? "");
      fetched.set(url.href, { name: file, url: url.href, type: answer.type, blob: new Blob([answer.data]) });
    }
    return answer;
  };
  const code = `import micropip
from wisp_sandbox.resolver import resolve
print(await resolve(${JSON.stringify(names)}, ${JSON.stringify(index)}))`;
  const { output, ended, failed } = await resolver.run(code, supply, { seconds: SECONDS, signal, isPrivate });
  if (ended !== "done") throw new Error("The packages cannot be installed: they are too large, or take too long.");
  if (failed)
    throw new Error("Packages cannot be looked for: the page's micropip does not start. Check the network.", {
      cause: output,
    });
  const { problem, wheels } = JSON.parse(output.trimEnd().split("\n").at(-1) ?? ""); // warnings come before
  if (problem) throw new Error(`${problem}.`);
  return /** @type {string[]} */ (wheels).map((name) => {
    const file = [...fetched.values()].find((each) => each.name === name);
    if (!file) throw new Error(`The index gives ${name} another name.`);
    return file;
  });
}

/**
 * @param {URL} url @param {{ signal: AbortSignal, cache: RequestCache, budget: { bytes: number } }} options `budget`: what
 *   all downloads have left
 * @returns {Promise<import("./sandbox/worker.js").Wheel>}
 */
async function fetchedFrom(url, { signal, cache, budget }) {
  try {
    const response = await fetch(url, {
      headers: { Accept: ACCEPT },
      cache,
      credentials: "omit",
      referrerPolicy: "no-referrer",
      redirect: "error", // to a server that the user was not told of
      signal,
    });
    const { status } = response;
    if (!response.ok) return { data: null, why: `HTTP status ${status}`, status };
    const data = await contentOf(response, budget);
    if (!data) return { data, why: `the packages have more than ${BYTES / 1e6} MB`, status };
    return { data, why: "", type: response.headers.get("content-type") ?? "", status };
  } catch (error) {
    return { data: null, why: String(error), status: 0 };
  }
}

/** A response's content, or null if it has more bytes. @param {Response} response @param {{ bytes: number }} budget */
async function contentOf(response, budget) {
  /** @type {Uint8Array<ArrayBuffer>[]} */
  const parts = [];
  const reader = /** @type {ReadableStream<Uint8Array<ArrayBuffer>>} */ (response.body).getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return new Blob(parts).arrayBuffer();
    parts.push(value);
    budget.bytes -= value.length;
    if (budget.bytes < 0) {
      await reader.cancel();
      return null;
    }
  }
}

/** The store of this page's Pyodide: what was chosen for another may not run here, and is deleted. */
async function openStore() {
  const versions = ["pyodide", "sandboxPackages"].map((part) => partUrl(part)?.match(/-([0-9a-f]+)(\/|\.json)$/)?.[1]);
  const name = [STORE, ...versions].join("-");
  await deleteStores(name);
  return caches.open(name);
}

/** @param {string} [except] */
async function deleteStores(except) {
  const names = (await caches.keys()).filter((name) => name.startsWith(STORE) && name !== except);
  await Promise.all(names.map((name) => caches.delete(name)));
}

/** The wheels that were stored for a set of names. @param {string} key @param {Cache | undefined} store */
async function storedWheels(key, store) {
  const list = await store?.match(key);
  if (!list) return null;
  const files = /** @type {{ name: string, url: string }[]} */ (await list.json());
  const found = await Promise.all(
    files.map(async ({ name, url }) => ({ name, blob: await (await store?.match(url))?.blob() })),
  );
  return found.every(({ blob }) => blob) ? /** @type {ToolFile[]} */ (found) : null;
}

/** @param {string} key @param {Fetched[]} wheels @param {Cache | undefined} store */
async function storeWheels(key, wheels, store) {
  if (!store) return;
  await Promise.all(wheels.map(({ url, blob }) => store.put(url, new Response(blob))));
  await store.put(key, Response.json(wheels.map(({ name, url }) => ({ name, url }))));
}
