/** Buffers outside Python's heap. */

/** Frees a buffer's memory now. @param {ArrayBuffer} buffer */
export const release = (buffer) => void buffer.transfer?.(0);

/** The SHA-256 of a buffer, in hex. @param {ArrayBuffer} buffer */
export async function sha256(buffer) {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", buffer));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Reads part of a File from disk. @param {Blob} blob @param {number} start @param {number} end */
export const slice = (blob, start, end) => blob.slice(start, end).arrayBuffer();

/**
 * Opens parts of a File for upload.js, without checksums. @param {Blob} file @param {Float64Array} spans
 * @returns {(i: number) => Promise<{ data: Blob }>}
 */
export const fileParts = (file, spans) => async (i) => ({
  data: file.slice(spans[2 * i], spans[2 * i] + spans[2 * i + 1]),
});
