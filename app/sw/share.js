/**
 * The share target of manifest.webmanifest: the system posts what was shared with Wisp as a form. The form is put aside for
 * the page, which is opened with its number and takes it (app/ui/launch.js).
 */
/// <reference lib="webworker" />

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const { scope } = worker.registration;

/** @param {Request} request */
export const isShared = ({ method, url }) => method === "POST" && url === new URL("share", scope).href;

/** @param {Request} request @returns {Promise<Response>} to the page */
export async function receive(request) {
  const number = crypto.randomUUID();
  const headers = { "content-type": request.headers.get("content-type") ?? "" };
  const cache = await caches.open(`wisp-shared ${scope}`);
  await cache.put(new URL(`share/${number}`, scope), new Response(request.body, { headers }));
  return Response.redirect(new URL(`./?shared=${number}`, scope), 303);
}
