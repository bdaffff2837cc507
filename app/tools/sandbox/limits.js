/** Limits on what code in the sandbox's worker takes: memory of WebAssembly, characters of output, files. */

const PAGE = 65536; // bytes of WebAssembly's memory
const LINE = 1000; // characters that wait for the end of their line, at most
const FILES = 20;
const FILE_BYTES = 16 << 20; // of all files of a run

/**
 * Lets no memory of WebAssembly grow beyond `most` bytes: Python raises MemoryError then. Pyodide's memory grows through
 * JavaScript alone. Call it before other code runs.
 * @param {number} most
 */
export function limitMemory(most) {
  const { prototype } = WebAssembly.Memory;
  const { apply } = Reflect;
  const { grow } = prototype;
  const size = /** @type {() => ArrayBuffer} */ (Object.getOwnPropertyDescriptor(prototype, "buffer")?.get);
  /** @this {WebAssembly.Memory} @param {number} pages */
  prototype.grow = function (pages) {
    if (apply(size, this, []).byteLength + pages * PAGE > most) throw new RangeError("The sandbox's memory is full.");
    return apply(grow, this, [pages]);
  };
}

/**
 * Output of a run, sent line by line.
 * @param {(text: string) => void} send @param {number} most characters
 */
export function limitedOutput(send, most) {
  let left = most;
  let line = "";
  const flush = () => {
    if (line) send(line);
    line = "";
  };
  return {
    flush,
    /** Adds text. Returns whether there may be more. @param {string} text */
    write(text) {
      if (left <= 0) return false;
      line += text.slice(0, left);
      left -= text.length;
      if (left <= 0 || line.length >= LINE || line.includes("\n")) flush();
      return left > 0;
    },
  };
}

/**
 * As many of a run's files as may leave the sandbox.
 * @template {{ size: number }} F @param {F[]} files @returns {{ accepted: F[], dropped: number }}
 */
export function limitedFiles(files) {
  let bytes = 0;
  const accepted = files.slice(0, FILES).filter(({ size }) => {
    if (bytes + size > FILE_BYTES) return false;
    bytes += size;
    return true;
  });
  return { accepted, dropped: files.length - accepted.length };
}
