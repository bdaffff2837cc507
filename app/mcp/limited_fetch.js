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
    const isStream = (response.headers.get("content-type") ?? "").startsWith("text/event-stream");
    return new Response(response.body.pipeThrough(limited(most, isStream)), response);
  };

/** @param {number} most bytes @param {boolean} isStream of events, which empty lines end */
function limited(most, isStream) {
  let bytes = 0;
  let isLineEmpty = false;
  return new TransformStream({
    transform(/** @type {Uint8Array} */ chunk, controller) {
      for (const byte of isStream ? chunk : []) {
        bytes++;
        if (byte === LINE_END && isLineEmpty) bytes = 0;
        isLineEmpty = byte === LINE_END || (isLineEmpty && byte === RETURN);
      }
      if (!isStream) bytes += chunk.byteLength;
      if (bytes > most) throw new Error(`The server's answer has more than ${most / 2 ** 20} MiB.`);
      controller.enqueue(chunk);
    },
  });
}
