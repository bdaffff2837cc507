/**
 * Packages of an index for the sandbox's Python: the page fetches them where the user allows it, and stores them for use
 * without a network.
 */
import { t } from "../language/phrase.js";
import { Sandbox, wheel } from "./sandbox/sandbox.js";

/** @typedef {import("./sandbox/worker.js").File} File */

export const PYPI = "https://pypi.org/simple";
const PYPI_FILES = "files.pythonhosted.org"; // what PyPI's pages link to
const STORE = "wisp-sandbox-packages"; // in Cache Storage
const ACCEPT = "application/vnd.pypi.simple.v1+json, */*;q=0.01";
const SECONDS = 600; // for all downloads
const NAME = /^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?([=<>!~]=?[\w.*+!<>=~,-]+)?$/;

/** Whether Python may ask for packages of an index; each fetch is still asked for. */
export const packagesAllowed = () => localStorage.getItem("wisp.tools.packages") === "ask";

/** Without it, what is stored is deleted. @param {boolean} allowed */
export function allowPackages(allowed) {
  if (allowed) localStorage.setItem("wisp.tools.packages", "ask");
  else localStorage.removeItem("wisp.tools.packages");
  if (!allowed) globalThis.caches?.delete(STORE).catch(() => {});
}

/**
 * The wheels of packages and of what they need and the sandbox lacks: those that are stored, else those of the index, if
 * the user confirms. Rejects with an error for the model.
 * @param {unknown} asked names, perhaps with versions
 * @param {{ index: string, signal: AbortSignal, confirm?: (question: string) => Promise<boolean> }} options
 * @returns {Promise<File[]>}
 */
export async function wheelsOf(asked, { index, signal, confirm }) {
  const names = namesOf(asked);
  if (!names.length) return [];
  const key = `${index}/?wisp-packages=${encodeURIComponent(names.join(" "))}`;
  const store = await globalThis.caches?.open(STORE).catch(() => undefined);
  const found = await stored(key, store);
  if (found) return found;
  const hosts = index === PYPI ? [new URL(PYPI).host, PYPI_FILES] : [new URL(index).host];
  const values = { packages: names.join(", "), hosts: hosts.join(", ") };
  const question = t("Fetch {packages} and what they need from {hosts}? These servers learn the names.", values);
  if (!(await confirm?.(`${question}`)))
    throw new Error("The user did not allow these packages to be fetched. Go on without them.");
  const wheels = await resolved(names, { index, hosts, signal });
  await keep(key, wheels, store).catch(() => {}); // without space, they are fetched again
  return wheels.map(({ name, data }) => ({ name, data }));
}

/** @param {unknown} asked */
function namesOf(asked) {
  const names = Array.isArray(asked) ? [...new Set(asked.map(String))].sort() : [];
  const wrong = names.find((name) => !NAME.test(name));
  if (wrong !== undefined)
    throw new Error(
      `packages has names of PyPI, such as "humanize" or "humanize==4.9.0", not ${JSON.stringify(wrong)}.`,
    );
  return names;
}

/**
 * Asks an index, in a sandbox of its own: code of a model could forge what the index is asked for.
 * @param {string[]} names @param {{ index: string, hosts: string[], signal: AbortSignal }} options
 */
async function resolved(names, { index, hosts, signal }) {
  /** @type {Map<string, { url: string, data: Uint8Array<ArrayBuffer> }>} by file name */
  const fetched = new Map();
  const supply = async (/** @type {unknown} */ name) => {
    if (!/^https?:/.test(`${name}`)) return wheel(name);
    const url = new URL(`${name}`);
    if (!hosts.includes(url.host)) return { data: null, why: `${url.host} is no server of this index`, status: 403 };
    const answer = await fetchedFrom(url, signal);
    const file = decodeURIComponent(url.pathname.split("/").at(-1) ?? "");
    if (answer.data && file.endsWith(".whl"))
      fetched.set(file, { url: url.href, data: new Uint8Array(answer.data.slice(0)) });
    return answer;
  };
  const sandbox = await Sandbox.start("python", signal, supply);
  try {
    const code = `import micropip
from wisp_sandbox.resolver import resolve
print(await resolve(${JSON.stringify(names)}, ${JSON.stringify(index)}))`;
    const { output, ended } = await sandbox.run(code, [], { seconds: SECONDS, signal });
    if (ended !== "done") throw new Error("The packages cannot be installed: they are too large, or take too long.");
    const { failed, wheels } = JSON.parse(output);
    if (failed) throw new Error(`${failed}.`);
    return /** @type {string[]} */ (wheels).map((name) => {
      const file = fetched.get(name);
      if (!file) throw new Error(`The index gives ${name} another name.`);
      return { name, ...file };
    });
  } finally {
    sandbox.end();
  }
}

/** @param {URL} url @param {AbortSignal} signal @returns {Promise<import("./sandbox/worker.js").Wheel>} */
async function fetchedFrom(url, signal) {
  try {
    const response = await fetch(url, {
      headers: { Accept: ACCEPT },
      credentials: "omit",
      referrerPolicy: "no-referrer",
      redirect: "error", // to a server that the user was not told of
      signal,
    });
    if (!response.ok) return { data: null, why: `HTTP status ${response.status}`, status: response.status };
    const type = response.headers.get("content-type") ?? "";
    return { data: await response.arrayBuffer(), why: "", type, status: response.status };
  } catch (error) {
    return { data: null, why: String(error), status: 0 };
  }
}

/** The wheels that were stored for these names. @param {string} key @param {Cache | undefined} store */
async function stored(key, store) {
  const list = await store?.match(key);
  if (!list) return null;
  const files = /** @type {{ name: string, url: string }[]} */ (await list.json());
  const found = await Promise.all(files.map(async ({ name, url }) => ({ name, response: await store?.match(url) })));
  if (found.some(({ response }) => !response)) return null;
  return Promise.all(
    found.map(async ({ name, response }) => ({
      name,
      data: new Uint8Array(await /** @type {Response} */ (response).arrayBuffer()),
    })),
  );
}

/** @param {string} key @param {(File & { url: string })[]} wheels @param {Cache | undefined} store */
async function keep(key, wheels, store) {
  if (!store) return;
  await Promise.all(wheels.map(({ url, data }) => store.put(url, new Response(data))));
  await store.put(key, Response.json(wheels.map(({ name, url }) => ({ name, url }))));
}
