/** Measures the upload of a cached model and compares it with the bandwidth of `writeBuffer` alone. */

/**
 * @typedef {{ bytes: number, ms: number, per_second: number, waited_ms: number, written_ms: number, end_ms: number,
 *   read_ms: number, hash_ms: number, write_buffer: number | null, share: number | null }} Upload
 *   waited_ms: waiting for records; written_ms: handing them to the GPU; end_ms: waiting for the GPU at the end; read_ms,
 *   hash_ms: reading, and checking on the CPU, summed over parallel reads; write_buffer: bytes per second of
 *   `writeBuffer` alone; share: the load's fraction of that
 */
const PIECE = 16 << 20;
const ROUNDS = 3;

/**
 * Loads the model again, from the browser's storage or the disk.
 * @param {any} engine a Wisp that has loaded it @param {Record<string, any>} request @param {{ signal?: AbortSignal }} options
 * @returns {Promise<Upload>}
 */
export async function loadAgain(engine, request, options) {
  await engine.unload();
  await engine.load(request, options);
  const { timings, cache, memory } = await engine.stats();
  const bytes = cache.cached_bytes || memory.weights; // a file on disk is not in the cache
  const per_second = (1000 * bytes) / timings.upload_ms;
  const write_buffer = await writeBufferRate(Math.min(bytes, 1 << 30)).catch(() => null);
  return {
    ...{ bytes, ms: timings.upload_ms, per_second, waited_ms: timings.upload_read_ms },
    ...{ written_ms: timings.upload_write_ms, end_ms: timings.upload_end_ms },
    ...{ read_ms: cache.read_ms, hash_ms: cache.hash_ms },
    ...{ write_buffer, share: write_buffer && per_second / write_buffer },
  };
}

/** Bytes per second of `writeBuffer` alone, the best of ROUNDS. @param {number} bytes */
async function writeBufferRate(bytes) {
  const adapter = await navigator.gpu?.requestAdapter({ powerPreference: "high-performance" });
  if (!adapter) return null;
  const device = await adapter.requestDevice();
  const data = new Uint8Array(PIECE).map((_, i) => i);
  const target = device.createBuffer({ size: 4 * PIECE, usage: GPUBufferUsage.COPY_DST | GPUBufferUsage.STORAGE });
  const pieces = Math.max(4, Math.floor(bytes / PIECE));
  let best = 0;
  for (let round = 0; round < ROUNDS; round++) {
    const begun = performance.now();
    for (let i = 0; i < pieces; i++) device.queue.writeBuffer(target, (i % 4) * PIECE, data);
    await device.queue.onSubmittedWorkDone();
    best = Math.max(best, (1000 * pieces * PIECE) / (performance.now() - begun));
  }
  device.destroy();
  return best;
}
