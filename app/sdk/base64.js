/** A blob's bytes in Base64. @param {Blob} blob @returns {Promise<string>} */
export function base64Of(blob) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => {
      const text = String(reader.result); // a data URL, whose media type may have commas in quotes
      resolve(blob.size ? text.slice(text.lastIndexOf(",") + 1) : "");
    };
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(blob);
  });
}

/**
 * The bytes of a Base64 text; fast also for tens of megabytes on a page's thread. Errors if it is none.
 * @param {string} text @returns {Uint8Array<ArrayBuffer>}
 */
export function bytesOf(text) {
  const { fromBase64 } = /** @type {any} */ (Uint8Array);
  if (fromBase64) return fromBase64.call(Uint8Array, text);
  const letters = atob(text);
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}
