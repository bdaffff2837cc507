/** Runs JavaScript in the sandbox's worker, as the body of an async function. */

/** @typedef {import("./worker.js").Runner} Runner */

const LEVELS = /** @type {const} */ (["log", "info", "debug", "warn", "error"]);

/** @returns {Runner} */
export function startJavaScript() {
  delete (/** @type {any} */ (self).WebAssembly); // its own memory would have no limit
  return async ({ code, files }, { write }, { begins }) => {
    /** @type {Map<string, Uint8Array>} */
    const saved = new Map();
    const print = (/** @type {unknown[]} */ ...values) => write(`${values.map(readable).join(" ")}\n`);
    for (const level of LEVELS) console[level] = print;
    Object.assign(self, {
      files: new Map(files.map(({ name, data }) => [name, data])),
      save: (/** @type {string} */ name, /** @type {unknown} */ data) => void saved.set(baseName(name), bytes(data)),
    });
    begins();
    let failed = false;
    try {
      const module = new Blob([`export default async () => {\n${code}\n}`], { type: "text/javascript" });
      const value = await (await import(URL.createObjectURL(module))).default();
      if (value !== undefined) print(value);
    } catch (error) {
      failed = true;
      print(error);
    }
    return { failed, files: [...saved].map(([name, data]) => ({ name, size: data.length, read: () => data })) };
  };
}

/** @param {unknown} value @returns {string} */
function readable(value) {
  if (value instanceof Error) return String(value);
  if (typeof value === "string") return value;
  try {
    return JSON.stringify(value, (_, part) => (typeof part === "bigint" ? String(part) : part)) ?? String(value);
  } catch {
    return String(value);
  }
}

/** @param {string} name */
const baseName = (name) => String(name).split("/").at(-1) || "file";

/** @param {unknown} data text, an ArrayBuffer or a view of one */
function bytes(data) {
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return new TextEncoder().encode(String(data));
}
