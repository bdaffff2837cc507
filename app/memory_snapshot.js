/**
 * The file of a Python that has started (tools/make_snapshot.mjs). Two thirds of its memory are zeros or the constants that
 * pyodide.asm.wasm has, too: the file holds what differs.
 *
 *   u32 x 3       length of Pyodide's snapshot; its header; number of pages
 *   u32 ...       the pages' numbers
 *   bytes         the header, as Pyodide wrote it
 *   4096 bytes... each page, XOR the memory of a new instance of the module
 */
const PAGE = 4096;

/**
 * @param {Uint8Array} snapshot of pyodide.makeMemorySnapshot() @param {Uint8Array} initial memory of a new instance
 * @returns {Uint8Array}
 */
export function pack(snapshot, initial) {
  const headerLength = new Uint32Array(snapshot.buffer, snapshot.byteOffset, 2)[1];
  const memory = snapshot.slice(headerLength);
  xor(memory, initial);
  const pages = [];
  for (let at = 0; at < memory.length; at += PAGE) {
    if (memory.subarray(at, at + PAGE).some((byte) => byte)) pages.push(at / PAGE);
  }
  const numbers = new Uint8Array(Uint32Array.of(snapshot.length, headerLength, pages.length, ...pages).buffer);
  const packed = new Uint8Array(numbers.length + headerLength + pages.length * PAGE);
  packed.set(numbers);
  packed.set(snapshot.subarray(0, headerLength), numbers.length);
  pages.forEach((page, i) => {
    packed.set(memory.subarray(page * PAGE, (page + 1) * PAGE), numbers.length + headerLength + i * PAGE);
  });
  return packed;
}

/**
 * Options of loadPyodide that start it from a packed snapshot.
 * @param {ArrayBuffer} packed
 * @param {() => Promise<{ default: (settings: any) => Promise<any> }>} load imports pyodide.asm.mjs
 */
export function startFrom(packed, load) {
  const [length, headerLength, count] = new Uint32Array(packed, 0, 3);
  const pages = new Uint32Array(packed, 12, count);
  const snapshot = new Uint8Array(length);
  let at = 12 + 4 * count;
  snapshot.set(new Uint8Array(packed, at, headerLength));
  at += headerLength;
  for (const page of pages) {
    snapshot.set(new Uint8Array(packed, at, PAGE), headerLength + page * PAGE);
    at += PAGE;
  }
  const memory = snapshot.subarray(headerLength);
  return { _loadSnapshot: snapshot, createPyodideModule: withInitialMemory(load, (initial) => xor(memory, initial)) };
}

/**
 * Calls `use` with the memory of the new instance, before any of its code runs. Pyodide restores a snapshot later.
 * @param {() => Promise<{ default: (settings: any) => Promise<any> }>} load imports pyodide.asm.mjs
 * @param {(memory: Uint8Array) => void} use
 */
export const withInitialMemory = (load, use) => async (/** @type {any} */ settings) => {
  const { instantiateWasm } = settings;
  /** @param {unknown} imports @param {(instance: any, module: unknown) => void} receive */
  settings.instantiateWasm = (imports, receive) =>
    instantiateWasm(imports, (/** @type {any} */ instance, /** @type {unknown} */ module) => {
      use(new Uint8Array(instance.exports.memory.buffer));
      receive(instance, module);
    });
  return (await load()).default(settings);
};

/** XOR whole words of `memory` with `initial`, which may be shorter. @param {Uint8Array} memory @param {Uint8Array} initial */
function xor(memory, initial) {
  const words = Math.min(memory.length, initial.length) / 4;
  const target = new Uint32Array(memory.buffer, memory.byteOffset, words);
  const source = new Uint32Array(initial.buffer, initial.byteOffset, words);
  for (let i = 0; i < words; i++) if (source[i]) target[i] ^= source[i];
}
