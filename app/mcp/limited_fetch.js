/** fetch() for servers that cannot be trusted: an answer without an end does not fill the memory. */

const MOST = 2 ** 26; // bytes of an answer, or of one event of a stream
const LINE_END = 10;
const RETURN = 13;

/** @param {number} [most] bytes @param {typeof fetch} [ask] @returns {typeof fetch} */
export const limitedFetch =
  (most = MOST, ask = (url, init) => fetch(url, init)) =>
  async (url, init) => {
    const response = await ask(url, init);
    if (!response.body) return response;
    if ((response.headers.get("content-type") ?? "").startsWith("text/event-stream"))
      return new Response(response.body.pipeThrough(limited(most)), response);
    return new Response(new Blob(await whole(response.body, most)), response);
  };

/**
 * The bytes of an answer. They are read here, because Chromium has one message for all that ends a body: that of a server
 * which is not there.
 * @param {ReadableStream<Uint8Array<ArrayBuffer>>} body @param {number} most bytes @returns {Promise<Uint8Array<ArrayBuffer>[]>}
 */
async function whole(body, most) {
  const reader = body.getReader();
  const chunks = [];
  let bytes = 0;
  for (;;) {
    const { done, value } = await reader.read().catch(lost);
    if (done) return chunks;
    chunks.push(value);
    bytes += value.byteLength;
    if (bytes <= most) continue;
    reader.cancel().catch(() => {});
    throw tooLong(most);
  }
}

/** @param {any} error @returns {never} */
function lost(error) {
  if (error?.name === "AbortError") throw error;
  throw new Error("The connection was lost in the middle of the answer. What was asked for may have been done.");
}

/** @param {number} most bytes */
const tooLong = (most) => new Error(`The server's answer has more than ${most / 2 ** 20} MiB.`);

/** Limits each event of a stream. @param {number} most bytes */
function limited(most) {
  let bytes = 0;
  let isLineEmpty = false;
  return new TransformStream({
    transform(/** @type {Uint8Array} */ chunk, controller) {
      for (const byte of chunk) {
        bytes++;
        if (byte === LINE_END && isLineEmpty) bytes = 0;
        isLineEmpty = byte === LINE_END || (isLineEmpty && byte === RETURN);
      }
      if (bytes > most) throw tooLong(most);
      controller.enqueue(chunk);
    },
  });
}
