/**
 * Limits what a PDF file may unpack to: a few megabytes can become many gigabytes. pdf.js has no such limit. It unpacks
 * streams into Uint8Arrays, which are counted here while they live. What it makes of these, it counts by calls that
 * tools/pdf_limits.mjs puts into it.
 */

const LIMIT = 512 << 20; // bytes of arrays
const OBJECTS = 768 << 20; // bytes of other objects
const CLEANUP = /^Cleanup$/; // the message with which the page has pdf.js free its caches
const COUNTED = 64 << 10; // smaller arrays are not counted

let live = 0;
const freed = new FinalizationRegistry((/** @type {number} */ size) => (live -= size));

/** @param {number} size @returns {boolean} */
function fits(size) {
  if (live + size <= LIMIT) return true;
  self.postMessage({ tooLarge: true }); // pdf.js would skip the stream; pdf.js itself ignores the message
  return false;
}

/** Estimates of the bytes of other objects. */
const objects = { used: 0, cached: 0, kept: 0 };

/** @param {keyof typeof objects} what @param {number} size */
function count(what, size) {
  if (size > 0) objects[what] += size;
  const { used, cached, kept } = objects;
  if (used + cached + kept <= OBJECTS) return;
  self.postMessage({ tooLarge: true });
  throw new RangeError(); // pdf.js goes on without it, until the page ends this worker
}

/**
 * What pdf.js calls (tools/pdf_limits.mjs).
 * @typedef {object} Counts
 * @property {(size: number) => void} use counts bytes that live until the next message of the page at most
 * @property {(size: number) => void} cache counts bytes that live until the next cleanup
 * @property {(size: number) => void} keep counts bytes that live until the file is read
 * @property {(size: number) => void} hold refuses what grows to so many bytes before it is counted
 */
/** @type {Counts} */
const counts = {
  use: (size) => count("used", size),
  cache: (size) => count("cached", size),
  keep: (size) => count("kept", size),
  hold: (size) => size > OBJECTS / 4 && count("used", OBJECTS),
};
globalThis.wispPdf = counts;

// Where there is no worker, pdf.js runs in the page, whose own arrays must stay as they are.
if (typeof document === "undefined") {
  addEventListener("message", ({ data }) => {
    objects.used = 0;
    if (CLEANUP.test(data?.action)) objects.cached = 0;
  });
  self.Uint8Array = new Proxy(Uint8Array, {
    construct(target, args, newTarget) {
      const size = typeof args[0] === "number" ? args[0] : 0;
      if (size < COUNTED) return Reflect.construct(target, args, newTarget);
      if (!fits(size)) throw new RangeError();
      const array = Reflect.construct(target, args, newTarget);
      live += size;
      freed.register(array, size);
      return array;
    },
  });
  Reflect.deleteProperty(self, "DecompressionStream"); // its chunks could not be counted; pdf.js unpacks without it
}
