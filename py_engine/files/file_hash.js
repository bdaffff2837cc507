/**
 * Hashes that the browser itself lacks, by hash-wasm: the SHA-256 of whole files, which the browser computes only of what is
 * in memory at once; and xxHash64, several times as fast, which detects damage but no forgery.
 */

const STEP = 2 ** 22; // bytes that are hashed before other work may run

/** What the worker bundles of hash-wasm. @returns {Pick<typeof import("hash-wasm"), "createSHA256" | "createXXHash64">} */
const hashes = () => /** @type {any} */ (globalThis).wispHashes;

/** @type {Promise<import("hash-wasm").IHasher> | undefined} */
let fast;

/** The xxHash64 of a buffer, in hex. @param {ArrayBuffer} buffer */
export async function xxHash(buffer) {
  const hash = await (fast ??= hashes().createXXHash64());
  return hash.init().update(new Uint8Array(buffer)).digest("hex");
}

/**
 * @param {AsyncIterable<Blob> | Blob[]} parts of the file, in order @param {AbortSignal} signal
 * @returns {Promise<string>} in hex
 */
export async function sha256Of(parts, signal) {
  const hash = await hashes().createSHA256();
  for await (const part of parts)
    for (let at = 0; at < part.size; at += STEP) {
      if (signal.aborted) throw new Error("aborted");
      hash.update(new Uint8Array(await part.slice(at, at + STEP).arrayBuffer()));
    }
  return hash.digest("hex");
}
