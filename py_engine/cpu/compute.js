/**
 * The engine's side of the CPU's compute worker (compute_worker.js). Commands go over a port and run in their order, while
 * the engine goes on.
 *
 * An engine with a worker of its own starts the compute worker. A shared worker can start none: a page lends it one
 * (app/ports.js), which ends with the page.
 */

/** @typedef {{ port: MessagePort, ended: Promise<string>, close: () => void }} Link  `ended`: why it ended */

/** @type {() => Promise<Link>} asks a page for a compute worker */
let borrow = () => Promise.reject(new Error("no page lends a worker"));

/** Sets the function that asks a page for a compute worker. @param {() => Promise<Link>} request */
export const onComputeNeeded = (request) => void (borrow = request);

/** @typedef {Record<"worker" | "simd" | "pairs" | "dots" | "simd64" | "pairs64" | "dots64", string>} Modules  URLs: tools/wasm.py says which is for what */

/** @param {string} url of the worker's module @returns {Link} */
function ownWorker(url) {
  const worker = new Worker(url, { type: "module", name: "wisp compute" });
  const { port1, port2 } = new MessageChannel();
  worker.postMessage({ port: port2 }, [port2]);
  /** @type {Promise<string>} */
  const ended = new Promise((resolve) => {
    worker.onerror = (event) => (event.preventDefault(), resolve(event.message || "its script did not load"));
  });
  return { port: port1, ended, close: () => worker.terminate() };
}

/** The instructions of this browser and processor. */
function instructions() {
  if (!relaxed()) return "simd";
  const float = new Float32Array([Infinity]);
  float[0] -= float[0];
  return new Uint8Array(float.buffer)[3] === 0xff ? "pairs" : "dots"; // the NaN of x86 has a sign
}

/** Whether the browser has relaxed SIMD: a module with one of its instructions is valid. */
function relaxed() {
  // (module (func (drop (i32x4.relaxed_dot_i8x16_i7x16_add (v128.const ...) three times)))
  const constant = [0xfd, 0x0c, ...Array(16).fill(0)];
  const body = [0, ...constant, ...constant, ...constant, 0xfd, 0x93, 0x02, 0x1a, 0x0b];
  const code = [1, body.length, ...body];
  const header = [0, 0x61, 0x73, 0x6d, 1, 0, 0, 0];
  return WebAssembly.validate(new Uint8Array([...header, 1, 4, 1, 0x60, 0, 0, 3, 2, 1, 0, 10, code.length, ...code]));
}

/** Whether the browser has memory64, for memory that threads share: a module that imports one is valid. */
function hasMemory64() {
  // (module (import "" "" (memory i64 1 1 shared)))
  return WebAssembly.validate(new Uint8Array([0, 0x61, 0x73, 0x6d, 1, 0, 0, 0, 2, 7, 1, 0, 0, 2, 7, 1, 1]));
}

export class Compute {
  static memory64 = hasMemory64();
  #link;
  #next = 1;
  /** @type {Map<number, { resolve: (value: any) => void, reject: (error: Error) => void }>} */
  #waiting = new Map();
  /** @type {string | null} why the worker ended, or what failed in it */
  lost = null;
  base = 0; // the first free address
  threads = 1; // at most

  /** @param {Link} link */
  constructor(link) {
    this.#link = link;
    link.port.onmessage = ({ data: { id, result, error } }) => {
      const call = this.#waiting.get(id);
      if (error && !call) return this.#lose(error);
      if (error) call?.reject(new Error(error));
      else call?.resolve(result);
      this.#waiting.delete(id);
    };
    link.ended.then((reason) => this.#lose(reason));
  }

  /** Opens a module. @param {Modules} urls @param {boolean} memory64 whether it is a 64-bit one @returns {Promise<Compute>} */
  static async open(urls, memory64) {
    const compute = new Compute(globalThis.Worker ? ownWorker(urls.worker) : await borrow());
    const module = urls[`${instructions()}${memory64 ? "64" : ""}`];
    try {
      const { base, threads } = await compute.#ask("open", [module, memory64]);
      return Object.assign(compute, { base, threads });
    } catch (error) {
      compute.close();
      throw error;
    }
  }

  /** @param {string} reason */
  #lose(reason) {
    this.lost ??= reason;
    for (const { reject } of this.#waiting.values()) reject(new Error(reason));
    this.#waiting.clear();
  }

  /** @param {string} kind @param {any[]} given */
  #tell(kind, given) {
    if (!this.lost) this.#link.port.postMessage({ kind, arguments: given });
  }

  /** @param {string} kind @param {any[]} given @returns {Promise<any>} */
  #ask(kind, given) {
    if (this.lost) return Promise.reject(new Error(this.lost));
    const id = this.#next++;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      this.#link.port.postMessage({ id, kind, arguments: given });
    });
  }

  /** @param {any} layout a Layout of compute_worker.js */
  start = (layout) => this.#tell("start", [layout]);

  /** Rejects if there is not so much memory. @param {number} end @returns {Promise<void>} */
  grow = (end) => this.#ask("grow", [end]);

  /** @param {Uint8Array | Int32Array | ArrayBuffer} data @param {Float64Array} parts (address, first byte, bytes) of each */
  write(data, parts) {
    const bytes =
      data instanceof ArrayBuffer
        ? new Uint8Array(data)
        : new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    this.#tell("write", [bytes, parts]);
  }

  /** @param {Float64Array} parts (from, to, bytes) of each */
  copy = (parts) => this.#tell("copy", [parts]);

  /** @param {Float64Array} lists (address, calls) of each @param {number} times */
  run = (lists, times) => this.#tell("run", [lists, times]);

  /**
   * Takes weights out of a record: see Machine.load.
   * @param {ArrayBuffer} data @param {Float64Array} copies @param {Float64Array} packs
   * @param {number} staging @param {number} stagingBytes @returns {Promise<void>}
   */
  load = (data, copies, packs, staging, stagingBytes) =>
    this.#ask("load", [data, copies, packs, staging, stagingBytes]);

  /** @param {Float64Array} regions of Machine.read @returns {Promise<{ data: ArrayBuffer, ms: number }>} */
  read = (regions) => this.#ask("read", [regions]);

  /** @param {Float64Array} regions @returns {Promise<Float32Array>} */
  floats = async (regions) => new Float32Array((await this.read(regions)).data);

  close() {
    this.#lose("it was closed");
    this.#link.port.postMessage({ kind: "close" });
    this.#link.close();
  }
}
