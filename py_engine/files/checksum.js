/** The checksum of a stored record. */

/**
 * Computes two sums that detect damage to a stored record. Its SHA-256 was compared when it arrived.
 *
 * Each little-endian word is mixed with its index (xor, shift, multiply; a bijection of the word) and added to the first
 * sum, then mixed once more and added to the second. The order does not matter, so a GPU can compute them too:
 * checksum.wgsl has the same constants; tests compare both with tests/support/checksums.py. The first sum starts with the
 * number of bytes. An incomplete last word is padded with zeros.
 * @param {ArrayBuffer} buffer @param {number} length bytes that count
 * @returns {number[]} u32
 */
export function checksum(buffer, length = buffer.byteLength) {
  const whole = length >> 2;
  const [first, second] = sums(new Uint32Array(buffer, 0, whole), 0);
  const rest = new Uint8Array(4);
  rest.set(new Uint8Array(buffer, 4 * whole, length % 4));
  const end = length % 4 ? sums(new Uint32Array(rest.buffer), whole) : [0, 0];
  return [(length + first + end[0]) >>> 0, (second + end[1]) >>> 0];
}

/** @param {Uint32Array} words @param {number} at index of the first word */
function sums(words, at) {
  let key = Math.imul(at, 0x9e3779b1);
  let first = 0;
  let second = 0;
  for (let i = 0; i < words.length; i++) {
    let word = words[i] ^ key;
    key = (key + 0x9e3779b1) | 0;
    word = Math.imul(word ^ (word >>> 16), 0x7feb352d);
    word ^= word >>> 15;
    first = (first + word) | 0;
    word = Math.imul(word, 0x846ca68b);
    second = (second + (word ^ (word >>> 16))) | 0;
  }
  return [first, second];
}
