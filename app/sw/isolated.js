/** Makes pages cross-origin isolated on hosts that do not send the headers: threads on the CPU need it. */

const HEADERS = {
  "Cross-Origin-Opener-Policy": "same-origin",
  "Cross-Origin-Embedder-Policy": "require-corp",
  "Cross-Origin-Resource-Policy": "same-origin",
};

/** The response with the headers that it lacks. @param {Response} response */
export function isolated(response) {
  const missing = Object.entries(HEADERS).filter(([name]) => !response.headers.has(name));
  if (!missing.length) return response;
  const headers = new Headers(response.headers);
  for (const [name, value] of missing) headers.set(name, value);
  const { status, statusText } = response;
  return new Response(response.body, { status, statusText, headers });
}
