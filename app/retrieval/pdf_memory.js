/**
 * Limits what the streams of a PDF file may unpack to: a few megabytes of them can become many gigabytes. pdf.js has no
 * such limit, but it unpacks into Uint8Arrays, which are counted here while they live.
 */

const LIMIT = 512 << 20;
const COUNTED = 64 << 10; // smaller arrays are not counted

let live = 0;
const freed = new FinalizationRegistry((/** @type {number} */ size) => (live -= size));

/** @param {number} size @returns {boolean} */
function fits(size) {
  if (live + size <= LIMIT) return true;
  self.postMessage({ tooLarge: true }); // pdf.js would skip the stream; pdf.js itself ignores the message
  return false;
}

// Where there is no worker, pdf.js runs in the page, whose own arrays must stay as they are.
if (typeof document === "undefined") {
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
