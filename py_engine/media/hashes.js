/**
 * The SHA-256 of each array, computed by the browser while Python goes on: in WebAssembly, Python's own takes many times
 * as long. Undefined in pages from plain http, where browsers compute none.
 * @param {Uint8Array<ArrayBuffer>[]} arrays @returns {Promise<(Uint8Array | undefined)[]>}
 */
export function hashes(arrays) {
  return Promise.all(
    arrays.map(async (array) => crypto.subtle && new Uint8Array(await crypto.subtle.digest("SHA-256", array))),
  );
}
