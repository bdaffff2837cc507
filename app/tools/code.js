/** The code tools: Python and JavaScript that a model wrote run in a sandbox, in the page and without a network. */
import { t } from "../language/phrase.js";
import { packageNames, packagesAllowed, PYPI, wheelsOf } from "./packages.js";
import { fetchParts, Sandbox } from "./sandbox/sandbox.js";

/**
 * @typedef {import("./registry.js").Source} Source
 * @typedef {import("./registry.js").Tool} Tool
 * @typedef {import("./registry.js").ToolResult} ToolResult
 * @typedef {import("./registry.js").RunOptions} RunOptions
 * @typedef {import("./sandbox/sandbox.js").Ran} Ran
 * @typedef {{ code: string, packages: unknown, index: string | null }} Call `index`: whose packages it may ask for
 */

export const CODE = "code"; // the id of the source
const SECONDS = 30; // that a call may run
const IDLE_MS = 10 * 60_000; // after which a session's memory is freed
const TYPES = { png: "image/png", svg: "image/svg+xml", jpg: "image/jpeg", jpeg: "image/jpeg", gif: "image/gif",
  webp: "image/webp", csv: "text/csv", txt: "text/plain", json: "application/json" }; // prettier-ignore

// Texts for models
const HERE =
  "The standard library, numpy, matplotlib, pandas, scipy, scikit-learn, sympy, seaborn, beautifulsoup4, lxml, " +
  "openpyxl, xlsxwriter, python-docx and python-pptx";
const PYTHON =
  "Runs Python 3 code and returns what it prints and the value of its last line. There is no network. Variables and " +
  "files last until they have not been used for ten minutes. Files that the user has attached are in the working " +
  `directory. ${HERE} can be imported, other packages only as wheels that the user has attached{index}. The user sees ` +
  "matplotlib's figures, .svg and .png files that the code writes, and what show(array) gets: pixels of shape " +
  "(height, width) or (height, width, 3). Other files are offered for download.";
const JAVASCRIPT =
  "Runs JavaScript code, the body of an async function, in a browser's worker, and returns what it logs with " +
  "console.log and the value that it returns. There is no network and no document, and nothing lasts between calls. " +
  "files.get(name) has the bytes of a file that the user has attached. save(name, text or bytes) gives the user a file; .svg and .png files are shown.";
const FROM_INDEX = ", or from PyPI where the call names them in packages";
const PACKAGES = {
  type: "array",
  items: { type: "string" },
  maxItems: 10,
  description:
    "Packages of PyPI that the code imports and the sandbox lacks: pure Python, or built for Pyodide. The user is asked.",
};
const parameters = (/** @type {string} */ language, more = {}) => ({
  type: "object",
  properties: { code: { type: "string", description: `${language} code` }, ...more },
  required: ["code"],
  additionalProperties: false,
});
const ENDED = {
  done: "",
  load: "Stopped before the code began: its files and packages took too long to load. Run it again.",
  time: "Stopped: the code ran too long.",
  memory: "Stopped: the memory was used up.",
  output: "Stopped: there was too much output.",
  broken: "Stopped: the interpreter broke down.",
};

/** A chat's session of Python: one interpreter, whose calls run one after the other. */
class Session {
  /** @type {Promise<Sandbox> | null} */
  #sandbox = null;
  /** @type {Promise<unknown>} the last call */
  #last = Promise.resolve();
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #idle;
  #used = false;
  /** @type {WeakSet<Blob>} the user's files that the session has */
  #given = new WeakSet();
  /** @type {Map<string, string>} the wheels of an index that are installed: package -> file name */
  #installed = new Map();
  /** @type {Set<string>} the calls' sets of names whose wheels are all installed */
  #complete = new Set();

  /** @param {Call} call @param {RunOptions} options @param {number} seconds @returns {Promise<ToolResult>} */
  async run(call, options, seconds) {
    clearTimeout(this.#idle);
    const run = () => this.#run(call, options, seconds);
    const running = this.#last.then(run, run);
    this.#last = running;
    return running.finally(() => {
      clearTimeout(this.#idle);
      if (this.#last === running) this.#idle = setTimeout(() => this.end(), IDLE_MS);
    });
  }

  /** @param {Call} call @param {RunOptions} options @param {number} seconds */
  async #run({ code, packages, index }, { signal, files = [], onProgress, confirm, isPrivate }, seconds) {
    signal.throwIfAborted();
    const names = index === null ? [] : packageNames(packages);
    const set = names.join(" ");
    const has = !names.length || (this.#sandbox && this.#complete.has(set));
    const wheels = has || index === null ? [] : await wheelsOf(names, { index, signal, isPrivate, confirm });
    if (wheels.some(({ name }) => (this.#installed.get(packageOf(name)) ?? name) !== name)) this.end(); // another version
    const isNew = this.#sandbox === null;
    this.#sandbox ??= Sandbox.start("python", signal);
    const sandbox = await this.#sandbox.catch((error) => {
      this.#sandbox = null;
      throw error;
    });
    const lost = isNew && this.#used;
    this.#used = true;
    try {
      const fresh = isNew ? files : files.filter((file) => !this.#given.has(file.blob));
      for (const { blob } of fresh) this.#given.add(blob);
      if (isNew) {
        this.#installed.clear();
        this.#complete.clear();
      }
      const lacking = wheels.filter(({ name }) => !this.#installed.has(packageOf(name)));
      const from = index === null ? "" : FROM_INDEX;
      const importable = `${HERE} are here. Other packages can be imported from wheels (.whl files) that the user attaches${from}.`;
      const options = { seconds, signal, onOutput: onProgress, wheels: await bytesOf(lacking), importable };
      const ran = await sandbox.run(code, await bytesOf(fresh), options);
      for (const { name } of lacking) if (ran.installed.includes(name)) this.#installed.set(packageOf(name), name);
      if (wheels.every(({ name }) => this.#installed.has(packageOf(name)))) this.#complete.add(set);
      return resultOf(ran, lost);
    } finally {
      if (sandbox.ended) this.#sandbox = null;
    }
  }

  end() {
    clearTimeout(this.#idle);
    this.#sandbox?.then((sandbox) => sandbox.end()).catch(() => {});
    this.#sandbox = null;
  }
}

/** The package of a wheel, as its file name has it. @param {string} file */
const packageOf = (file) => file.split("-")[0].toLowerCase().replace(/[._]+/g, "_");

/** @param {Ran} ran @param {boolean} lost earlier variables were lost @returns {ToolResult} */
function resultOf({ ended, failed, output, files, dropped }, lost) {
  const names = files.map(({ name }) => name).join(", ");
  const lines = [
    lost && "(Python was started anew: variables and files of earlier calls are gone.)",
    output.trimEnd(),
    ENDED[ended],
    names && `The user was given: ${names}`,
    dropped && `${dropped} files were too many or too large to be kept.`,
  ].filter(Boolean);
  return {
    text: lines.join("\n") || "(no output)",
    files: files.map(({ name, data }) => ({ name, blob: new Blob([data], { type: typeOf(name) }) })),
    failed: failed || ended !== "done",
  };
}

/** @param {import("./registry.js").ToolFile[]} files @returns {Promise<import("./sandbox/worker.js").File[]>} */
function bytesOf(files) {
  return Promise.all(
    files.map(async ({ name, blob }) => ({
      name: name.split("/").at(-1) || "file",
      data: new Uint8Array(await blob.arrayBuffer()),
    })),
  );
}

/** @param {string} name */
function typeOf(name) {
  const suffix = name.split(".").at(-1)?.toLowerCase() ?? "";
  return TYPES[/** @type {keyof typeof TYPES} */ (suffix)] ?? "application/octet-stream";
}

/** @param {string} code @param {RunOptions} options @param {number} seconds */
async function runJavaScript(code, { signal, files = [], onProgress }, seconds) {
  const sandbox = await Sandbox.start("javascript", signal);
  try {
    return resultOf(await sandbox.run(code, await bytesOf(files), { seconds, signal, onOutput: onProgress }), false);
  } finally {
    sandbox.end();
  }
}

/**
 * The source of the code tools.
 * @param {{ seconds?: number, index?: string }} [options] limits of a call; the index of packages, which has PyPI's simple API
 * @returns {Source & { end: (chat?: string) => void }} its `prepare` fetches what the tools need without a network later;
 *   `end` frees a chat's session, or all
 */
export function codeTools({ seconds = SECONDS, index = PYPI } = {}) {
  /** @type {Map<string, Session>} by chat */
  const sessions = new Map();
  const session = (/** @type {string} */ chat) => {
    for (const [id, each] of sessions) if (id !== chat) each.end(); // a session takes some 100 MB
    const found = sessions.get(chat) ?? new Session();
    sessions.set(chat, found);
    return found;
  };
  return {
    id: CODE,
    name: t("Code in a sandbox"),
    tools: [
      {
        name: "python",
        title: "Python",
        // The setting may change while the tool is offered.
        get description() {
          return PYTHON.replace("{index}", packagesAllowed() ? FROM_INDEX : "");
        },
        get parameters() {
          return parameters("Python", packagesAllowed() ? { packages: PACKAGES } : {});
        },
        run: ({ code, packages }, options) => {
          const call = { code: `${code}`, packages, index: packagesAllowed() ? index : null };
          return session(options.chat ?? "").run(call, options, seconds);
        },
      },
      {
        name: "javascript",
        title: "JavaScript",
        description: JAVASCRIPT,
        parameters: parameters("JavaScript"),
        run: ({ code }, options) => runJavaScript(`${code}`, options, seconds),
      },
    ],
    // The service worker stores what is fetched.
    prepare: async () => void (await fetchParts("python")),
    end(chat) {
      for (const [id, each] of sessions) if (chat === undefined || id === chat) each.end();
    },
  };
}
