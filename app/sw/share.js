/**
 * The share target of manifest.webmanifest. The system posts what was shared with Wisp as a form. The worker stores it and
 * opens the page with the form's id; the page takes it (app/ui/launch.js).
 */
/// <reference lib="webworker" />
import { openSharedForms, sharedFormUrl } from "../shared_forms.js";

const worker = /** @type {ServiceWorkerGlobalScope} */ (/** @type {unknown} */ (self));
const { scope } = worker.registration;

/** @param {Request} request */
export const isShared = ({ method, url }) => method === "POST" && url === new URL("share", scope).href;

/** @param {Request} request @returns {Promise<Response>} a redirect to the page, which says so if nothing was stored */
export async function receive(request) {
  const id = crypto.randomUUID();
  const headers = { "content-type": request.headers.get("content-type") ?? "" };
  try {
    const cache = await openSharedForms(scope);
    await cache.put(sharedFormUrl(id, scope), new Response(request.body, { headers }));
  } catch {
    // The page finds nothing.
  }
  return Response.redirect(new URL(`./?shared=${id}`, scope), 303);
}
