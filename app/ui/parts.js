/** Loads libraries of the page when they are first needed. `#parts` in index.html names their files. */

/** @param {string} name a data attribute of `#parts`, in camel case @returns {string | null} the file's address */
export function partUrl(name) {
  const path = document.getElementById("parts")?.dataset[name];
  return path ? new URL(path, document.baseURI).href : null;
}

/** The addresses of a part that is several files. @param {string} name as in partUrl() @returns {string[]} */
export function partUrls(name) {
  const paths = document.getElementById("parts")?.dataset[name]?.split(" ") ?? [];
  return paths.map((path) => new URL(path, document.baseURI).href);
}

const FOR_ANSWERS = ["mermaid", "highlightAll", "mcp"]; // fetched when they are first used, or while the page is idle

/** The addresses of the parts that answers may need: tools/delivery.py names them, too. */
export const answerFiles = () => FOR_ANSWERS.map((name) => partUrl(name) ?? "");

/** The addresses of all parts that are one file: not the wheels of the sandbox, which are many and large. */
export const partFiles = () =>
  Object.entries(document.getElementById("parts")?.dataset ?? {})
    .filter(([, path]) => path && !path.includes(" ") && !path.endsWith("/"))
    .map(([name]) => partUrl(name) ?? "");

/** @param {string} name of a module @returns {Promise<any>} */
export async function importPart(name) {
  const url = partUrl(name);
  if (!url) throw new Error(`index.html names no part ${name}.`);
  return import(url);
}

/** @type {Map<string, Promise<void>>} */
const styles = new Map();

/** Applies a style sheet, once. @param {string} name @returns {Promise<void>} */
export function applyStyle(name) {
  const found = styles.get(name);
  if (found) return found;
  const applied = new Promise((resolve, reject) => {
    const link = document.createElement("link");
    const failed = () => {
      link.remove();
      styles.delete(name);
      reject(new Error(`The style sheet ${name} cannot be loaded.`));
    };
    Object.assign(link, {
      rel: "stylesheet",
      href: partUrl(name) ?? "",
      onload: () => resolve(undefined),
      onerror: failed,
    });
    document.head.append(link);
  });
  styles.set(name, applied);
  return applied;
}
