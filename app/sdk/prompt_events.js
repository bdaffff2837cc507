/** Events and signals of the Prompt API (prompt_api.js). */

const STEP = 1 / 0x10000; // of progress, by the specification

/** A reporter of the part that has arrived, from 0 to 1; equal ones are sent once. @param {EventTarget} target */
export function progressTo(target) {
  let sent = -1;
  return (/** @type {number} */ part) => {
    const loaded = Math.floor(part / STEP) * STEP;
    if (loaded <= sent) return;
    sent = loaded;
    target.dispatchEvent(new ProgressEvent("downloadprogress", { lengthComputable: true, loaded, total: 1 }));
  };
}

/** Lets `target.onNAME = listener` listen. @param {EventTarget} target @param {string} name */
export function on(target, name) {
  /** @type {any} */
  let listener = null;
  target.addEventListener(name, (event) => listener?.call(target, event));
  const set = (/** @type {any} */ value) => void (listener = typeof value === "function" ? value : null);
  Object.defineProperty(target, `on${name}`, { get: () => listener, set });
}
