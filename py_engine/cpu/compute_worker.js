/**
 * Runs the CPU engine's module (wasm/): one of these workers takes commands from the engine's worker (compute.js) over a
 * port, in their order, and starts others of the same script as further threads.
 *
 * The module's memory is shared also on pages that are not cross-origin isolated: there is then one thread.
 */

/**
 * @typedef {object} Start  of a thread
 * @property {WebAssembly.Module} module @property {WebAssembly.Memory} memory
 * @property {number} thread its number, from 1 on @property {Address} stack the end of its stack
 *
 * @typedef {number | bigint} Address  a number in calls of a 32-bit module, a bigint in those of a 64-bit one
 *
 * @typedef {object} Exports
 * @property {WebAssembly.Global} __stack_pointer @property {WebAssembly.Global} __heap_base
 * @property {(threads: number, scratch: Address, bytes: number) => void} init
 * @property {(calls: Address, size: number) => void} run
 * @property {(thread: number) => void} work @property {() => void} fail
 * @property {(type: number, from: Address, to: Address, row0: number, rows: number, cols: number, grid: Address) => void} pack
 *
 * @typedef {object} Layout  memory of the threads
 * @property {number} threads @property {number} stacks @property {number} stackBytes
 * @property {number} scratch @property {number} scratchBytes
 */

const PAGE = 1 << 16;
const MOST_PAGES = [65535, 32768, 16384, 8192]; // some systems have fewer addresses
const MOST_PAGES_64 = [262144, 196608, 131072, 98304, 65536];

/** @param {WebAssembly.Module} module @param {WebAssembly.Memory} memory */
async function instance(module, memory) {
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  return /** @type {Exports} */ (/** @type {any} */ (exports));
}

/** @param {boolean} memory64 @returns {WebAssembly.Memory} */
function newMemory(memory64) {
  const most = memory64 ? MOST_PAGES_64 : MOST_PAGES;
  for (const maximum of most) {
    try {
      const limits = memory64 ? { address: "i64", initial: 32n, maximum: BigInt(maximum) } : { initial: 32, maximum };
      return new WebAssembly.Memory(/** @type {WebAssembly.MemoryDescriptor} */ ({ ...limits, shared: true }));
    } catch (error) {
      if (maximum === most.at(-1)) throw error;
    }
  }
  throw new RangeError("no memory");
}

/** The module, its memory and its threads. */
class Machine {
  #ms = 0; // of the lists that have run since the last read
  #memory;
  #threads = /** @type {Worker[]} */ ([]);
  #module;
  /** @type {(n: number) => any} An address or a number of pages, as the module and its memory take it */
  #address;
  #exports = /** @type {Exports} */ ({});

  /** @param {WebAssembly.Module} module @param {boolean} memory64 whether it is a 64-bit one */
  constructor(module, memory64) {
    this.#module = module;
    this.#memory = newMemory(memory64);
    this.#address = memory64 ? BigInt : Number;
  }

  /** @returns {Promise<{ base: number, threads: number }>} the first free address, and threads at most */
  async open() {
    this.#exports = await instance(this.#module, this.#memory);
    const threads = globalThis.crossOriginIsolated && globalThis.Worker ? navigator.hardwareConcurrency : 1;
    return { base: Number(this.#exports.__heap_base.value), threads };
  }

  /** Gives the threads their memory, and starts all but this one. @param {Layout} layout */
  start({ threads, stacks, stackBytes, scratch, scratchBytes }) {
    /** @param {number} thread */
    const stackOf = (thread) => this.#address(stacks + (thread + 1) * stackBytes);
    this.#exports.__stack_pointer.value = stackOf(0);
    this.#exports.init(threads, this.#address(scratch), scratchBytes);
    for (let thread = 1; thread < threads; thread++) {
      const worker = new Worker(self.location.href, { type: "module", name: `wisp thread ${thread}` });
      /** @type {Start} */
      const start = { module: this.#module, memory: this.#memory, thread, stack: stackOf(thread) };
      worker.postMessage(start);
      this.#threads.push(worker);
    }
  }

  /** Makes memory up to an address usable. @param {number} end */
  grow(end) {
    const missing = Math.ceil((end - this.#memory.buffer.byteLength) / PAGE);
    if (missing > 0) this.#memory.grow(this.#address(missing));
  }

  /** @param {number} address @param {number} size */
  #bytes = (address, size) => new Uint8Array(this.#memory.buffer, address, size);

  /** Writes parts of `data`: (address, first byte, bytes) of each. @param {Uint8Array} data @param {Float64Array} parts */
  write(data, parts) {
    for (let i = 0; i < parts.length; i += 3)
      this.#bytes(parts[i], parts[i + 2]).set(data.subarray(parts[i + 1], parts[i + 1] + parts[i + 2]));
  }

  /** (from, to, bytes) of each. @param {Float64Array} parts */
  copy(parts) {
    for (let i = 0; i < parts.length; i += 3)
      this.#bytes(parts[i + 1], parts[i + 2]).set(this.#bytes(parts[i], parts[i + 2]));
  }

  /** Runs lists (address, calls of each), all of them so many times. @param {Float64Array} lists @param {number} times */
  run(lists, times) {
    const started = performance.now();
    for (let step = 0; step < times; step++)
      for (let i = 0; i < lists.length; i += 2) this.#exports.run(this.#address(lists[i]), lists[i + 1]);
    this.#ms += performance.now() - started;
  }

  /**
   * Takes weights out of a record: copies bytes, and packs rows of matrices.
   * @param {ArrayBuffer} data @param {Float64Array} copies (address, first byte, bytes) of each
   * @param {Float64Array} packs the fields of Pack (device.py) of each @param {number} staging @param {number} stagingBytes
   */
  load(data, copies, packs, staging, stagingBytes) {
    const address = this.#address;
    this.write(new Uint8Array(data), copies);
    for (let i = 0; i < packs.length; i += 8) {
      const [type, source, matrix, row0, rows, cols, rowBytes, grid] = packs.subarray(i, i + 8);
      const step = Math.max(1, Math.floor(stagingBytes / rowBytes));
      for (let done = 0; done < rows; done += step) {
        const count = Math.min(step, rows - done);
        this.#bytes(staging, count * rowBytes).set(new Uint8Array(data, source + done * rowBytes, count * rowBytes));
        this.#exports.pack(type, address(staging), address(matrix), row0 + done, count, cols, address(grid));
      }
    }
  }

  /** Regions (address, bytes, rows, bytes between rows), end to end. @param {Float64Array} regions */
  read(regions) {
    let size = 0;
    for (let i = 0; i < regions.length; i += 4) size += regions[i + 1] * regions[i + 2];
    const data = new Uint8Array(size);
    for (let i = 0, at = 0; i < regions.length; i += 4)
      for (let row = 0; row < regions[i + 2]; row++, at += regions[i + 1])
        data.set(this.#bytes(regions[i] + row * regions[i + 3], regions[i + 1]), at);
    const ms = this.#ms;
    this.#ms = 0;
    return { data: data.buffer, ms };
  }
}

/** Serves one engine. @param {MessagePort} port */
function serve(port) {
  /** @type {Machine | undefined} */
  let machine;
  let queue = Promise.resolve();
  /** @param {{ id?: number, kind: string, arguments: any[] }} message */
  async function handle({ id, kind, arguments: given }) {
    try {
      let result;
      if (kind === "open") {
        const [url, memory64] = given;
        machine = new Machine(await WebAssembly.compile(await (await fetch(url)).arrayBuffer()), memory64);
        result = await machine.open();
      } else result = await /** @type {any} */ (machine)[kind](...given);
      if (id) port.postMessage({ id, result }, result?.data ? [result.data] : []);
    } catch (error) {
      port.postMessage({ id, error: String(/** @type {any} */ (error)?.message ?? error) });
    }
  }
  port.onmessage = ({ data }) => {
    if (data.kind === "close")
      self.close(); // and with it, its threads
    else queue = queue.then(() => handle(data));
  };
}

self.onmessage = async ({ data }) => {
  if (data.port) return serve(data.port);
  const { module, memory, thread, stack } = /** @type {Start} */ (data);
  const exports = await instance(module, memory);
  exports.__stack_pointer.value = stack;
  try {
    exports.work(thread); // does not return
  } catch (error) {
    exports.fail(); // or the others would wait for its chunk for ever
    throw error;
  }
};
