/**
 * A sandbox for code that a model wrote: a worker of a frame with an opaque origin (static/code.html), without network,
 * storage or access to the page. Removing the frame ends whatever runs there.
 */
import { t } from "../../language/phrase.js";
import { h } from "../../ui/dom.js";
import { partUrl, partUrls } from "../../ui/parts.js";

/**
 * @typedef {"python" | "javascript"} Language
 * @typedef {import("./worker.js").File} File
 * @typedef {(name: unknown) => Promise<import("./worker.js").Wheel>} Supply what the sandbox asks the page for, by name
 *
 * @typedef {object} Ran
 * @property {"done" | "load" | "time" | "memory" | "output" | "broken"} ended what ended the run, "load" before the code
 *   began; after all but "done" and "output" the sandbox has ended, too
 * @property {string[]} installed which of the given wheels are installed
 * @property {boolean} failed the code raised an error
 * @property {string} output as much as the limit allows
 * @property {File[]} files that it wrote
 * @property {number} dropped files that were too many or too large
 */

const MEMORY = 512 << 20; // bytes of Python's memory
const OUTPUT = 10_000; // characters
const START_S = 60; // a slow computer starts Python in ten
const DOWNLOAD_S = 600; // for packages; the next of them, the last, and each that is installed begin another limit
const CORE = ["pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json"];
// What the sandbox has beside Pyodide's core and packages, and the parts of the page that have it.
const OTHERS = {
  "python.bin": "snapshot",
  "packages.json": "sandboxPackages",
  "wisp_sandbox/session.py": "session",
  "wisp_sandbox/pictures.py": "pictures",
  "wisp_sandbox/plots.py": "plots",
  "wisp_sandbox/resolver.py": "resolver",
  "wisp/install_errors.py": "installErrors",
};

/** The files that a language needs, name -> address. @param {Language} language @returns {[string, string][]} */
function addresses(language) {
  const part = (/** @type {string} */ name) => partUrl(name) ?? "";
  if (language === "javascript") return [];
  const wheels = [part("numpy"), part("regex")];
  return [
    ...CORE.map((name) => /** @type {[string, string]} */ ([name, `${part("pyodide")}${name}`])),
    ...Object.entries(OTHERS).map(([name, id]) => /** @type {[string, string]} */ ([name, part(id)])),
    ...wheels.map((address) => /** @type {[string, string]} */ ([nameOf(address), address])),
  ];
}

/** @param {string} address */
const nameOf = (address) => address.split("/").at(-1) ?? "";

/**
 * A wheel that code in the sandbox imports; without data if there is none of this name, or as `why` says.
 * @param {unknown} name @returns {Promise<import("./worker.js").Wheel>}
 */
export async function wheel(name) {
  const address = partUrls("sandboxWheels").find((each) => nameOf(each) === name);
  if (!address) return { data: null, why: "" };
  try {
    const response = await fetch(address);
    if (!response.ok) throw new Error(`HTTP status ${response.status}`);
    return { data: await response.arrayBuffer(), why: "" };
  } catch (error) {
    return { data: null, why: error instanceof Error ? error.message : String(error) };
  }
}

/** Fetches what a language needs, so that it is there without a network. @param {Language} language */
export async function fetchParts(language) {
  const load = async (/** @type {string} */ address) => {
    const response = await fetch(address).catch(() => null);
    const content = response?.ok ? await response.arrayBuffer().catch(() => null) : null;
    if (!content)
      throw new Error(`${t("A part of the sandbox cannot be loaded. Check the connection and try again.")}`);
    return content;
  };
  const found = addresses(language).map(async ([name, address]) => [name, await load(address)]);
  const [script, ...parts] = await Promise.all([
    load(partUrl("codeWorker") ?? "").then((content) => new TextDecoder().decode(content)),
    ...found,
  ]);
  return { script, parts: Object.fromEntries(parts) };
}

export class Sandbox {
  #frame;
  #port;
  #supply;
  /** @type {((message: any) => void) | null} who hears what the worker says */
  #listener = null;
  #downloads = 0; // of wheels, under way
  ended = false;

  /** @param {HTMLIFrameElement} frame @param {MessagePort} port @param {Supply} supply */
  constructor(frame, port, supply) {
    this.#frame = frame;
    this.#port = port;
    this.#supply = supply;
    port.onmessage = ({ data }) => (data?.wheel === undefined ? this.#listener?.(data) : this.#hand(data.wheel));
  }

  /** Hands a wheel to the worker, which has no network. @param {unknown} name */
  async #hand(name) {
    this.#listener?.({ downloads: ++this.#downloads });
    const handed = await this.#supply(name).catch((error) => ({ data: null, why: String(error), status: 400 }));
    if (!this.ended) this.#port.postMessage({ wheel: name, ...handed }, handed.data ? [handed.data] : []);
    this.#listener?.({ downloads: --this.#downloads });
  }

  /**
   * Starts a sandbox. Rejects with the signal's reason, and where it cannot start.
   * @param {Language} language @param {AbortSignal} signal
   * @param {Supply | null} [supply] only finds packages, with what this supplies; the code that runs is the page's own
   */
  static async start(language, signal, supply = null) {
    const { script, parts } = await fetchParts(language);
    signal.throwIfAborted();
    const frame = h("iframe", { hidden: true, src: partUrl("code") });
    const { port1, port2 } = new MessageChannel();
    const sandbox = new Sandbox(frame, port1, supply ?? wheel);
    const began = sandbox.#heard({ signal, seconds: START_S }, ({ ready, broken }, end) => {
      if (ready) end(null);
      if (broken) end(broken);
    });
    const names = partUrls("sandboxWheels").map(nameOf);
    const wheels = supply ? names : names.filter((name) => !name.startsWith("micropip-")); // it would find no index
    const begin = { language, parts, wheels, resolves: supply !== null, memory: MEMORY, output: OUTPUT };
    const listen = (/** @type {MessageEvent} */ { source, origin }) => {
      if (source !== frame.contentWindow || origin !== location.origin) return;
      removeEventListener("message", listen);
      frame.contentWindow?.postMessage({ script, begin }, location.origin, [port2]);
    };
    addEventListener("message", listen);
    document.body.append(frame);
    const broken = await began
      .finally(() => removeEventListener("message", listen))
      .catch((error) => {
        sandbox.end();
        throw error;
      });
    if (broken === null) return sandbox;
    sandbox.end();
    if (broken === "time") throw new Error(`${t("The sandbox does not start: this computer is busy. Try again.")}`);
    throw new Error(`${t("The sandbox does not start: {why}", { why: String(broken) })}`);
  }

  /**
   * Runs code. Ends the sandbox if it takes too long, too much memory, or is stopped: then rejects with the signal's reason.
   * @param {string} code @param {File[]} files what it finds in its folder
   * @param {{ seconds: number, signal: AbortSignal, onOutput?: (output: string) => void, wheels?: File[], importable?: string }} options
   *   `wheels` are installed before; `importable`: which packages there are, for errors of imports
   * @returns {Promise<Ran>}
   */
  async run(code, files, { seconds, signal, onOutput, wheels = [], importable = "" }) {
    let output = "";
    let begun = false;
    /** @type {string[]} */
    const installed = [];
    const heard = this.#heard({ signal, seconds: START_S }, (message, end, limit) => {
      if (message.begins === true && !begun) {
        begun = true;
        limit(seconds);
      }
      if (typeof message.installed === "string" && !begun) {
        installed.push(message.installed);
        limit(START_S);
      }
      // the code itself, which may load packages, gets no more time for that
      if (message.downloads !== undefined && !begun) limit(message.downloads ? DOWNLOAD_S : START_S);
      if (typeof message.output === "string" && output.length < OUTPUT) {
        output += message.output.slice(0, OUTPUT - output.length);
        onOutput?.(output);
      }
      if (message.broken) end("broken");
      if (message.done) end(message.done);
    });
    this.#port.postMessage({ code, files, wheels, importable });
    const done = await heard.catch((error) => {
      this.end();
      throw error;
    });
    if (typeof done === "string" || done.outOfMemory) this.end();
    const nothing = { installed, failed: true, files: [], dropped: 0 };
    if (typeof done === "string") {
      const ended = done === "time" && !begun ? "load" : done;
      return { ...nothing, ended: /** @type {Ran["ended"]} */ (ended), output };
    }
    const ended = done.outOfMemory ? "memory" : done.full ? "output" : "done";
    return {
      ended,
      installed,
      failed: done.failed === true,
      output,
      files: filesOf(done.files),
      dropped: Number(done.dropped) || 0,
    };
  }

  /** Ends whatever runs. */
  end() {
    this.ended = true;
    this.#port.close();
    this.#frame.remove();
  }

  /**
   * Resolves to what `hear` ends with, or to "time" when the seconds are over.
   * @param {{ signal: AbortSignal, seconds: number }} options
   * @param {(message: any, end: (value: any) => void, limit: (seconds: number) => void) => void} hear gets each message
   * @returns {Promise<any>}
   */
  async #heard({ signal, seconds }, hear) {
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    let timer;
    let stop = () => {};
    try {
      return await new Promise((resolve, reject) => {
        const limit = (/** @type {number} */ seconds) => {
          clearTimeout(timer);
          timer = setTimeout(() => resolve("time"), seconds * 1000);
        };
        stop = () => reject(signal.reason);
        signal.addEventListener("abort", stop);
        limit(seconds);
        this.#listener = (message) => hear(message ?? {}, resolve, limit);
      });
    } finally {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      this.#listener = null;
    }
  }
}

/** What a message, which the code may have forged, has of files. @param {unknown} files @returns {File[]} */
function filesOf(files) {
  const list = Array.isArray(files) ? files : [];
  return list.filter(({ name, data }) => typeof name === "string" && data instanceof Uint8Array);
}
