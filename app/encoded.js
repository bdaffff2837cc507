/**
 * Fetches a large file of dist/ compressed. Hosts that send no Content-Encoding get asked for the .gz beside it.
 * @param {string} url @param {RequestInit} [options] @returns {Promise<Response>} with the file's own content
 */
export async function fetchEncoded(url, options) {
  const plain = await fetch(url, options);
  if (!plain.ok || plain.headers.has("content-encoding")) return plain;
  const packed = await fetch(`${url}.gz`, options).catch(() => undefined);
  if (!packed?.ok || !packed.body) return plain;
  await plain.body?.cancel();
  const headers = new Headers(plain.headers);
  headers.set("content-encoding", "gzip"); // who reads it from a cache need not ask again
  headers.delete("content-length");
  const decoded = packed.headers.has("content-encoding");
  return new Response(decoded ? packed.body : packed.body.pipeThrough(new DecompressionStream("gzip")), { headers });
}
