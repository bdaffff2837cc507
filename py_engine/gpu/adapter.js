/** The WebGPU adapter. A browser that has just started may answer that there is none, and so may one whose GPU process ended. */

const START_MS = 1000; // how long after the first request null may still be wrong
const RESTART_MS = 2000; // how long a GPU process may take to restart
const PAUSE_MS = 100;

/** @type {number | undefined} */
let firstRequestMs;
let hadAdapter = false;

/**
 * Requests the adapter until there is one, or it is known that there is none. The page's worker calls this before it
 * starts Python, so that the wait overlaps.
 * @param {number} leastMs to go on requesting it
 * @returns {Promise<any>} null if there is no adapter
 */
export async function requestAdapter(leastMs = 0) {
  const { gpu } = /** @type {any} */ (navigator);
  if (!gpu) return null;
  const now = performance.now();
  const end = Math.max(hadAdapter ? now + RESTART_MS : (firstRequestMs ??= now) + START_MS, now + leastMs);
  for (;;) {
    const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
    if (adapter) return ((hadAdapter = true), adapter);
    if (performance.now() >= end) return ((hadAdapter = false), null);
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}
