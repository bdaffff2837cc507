/** The WebGPU adapter. A browser that has just started may answer that there is none, and so may one whose GPU process ended. */

const START_MS = 1000; // after the first request: a browser that still has no adapter has no GPU
const RESTART_MS = 2000; // that the GPU process may take to start again
const PAUSE_MS = 100;

/** @type {number | undefined} when the adapter was first requested */
let began;
let found = false;

/**
 * Requests the adapter until there is one, or it is known that there is none. A worker calls this as it starts: what the
 * browser needs to start its GPU process has passed once Python asks.
 * @returns {Promise<any>} null: there is none
 */
export async function requestAdapter() {
  const { gpu } = /** @type {any} */ (navigator);
  if (!gpu) return null;
  const now = performance.now();
  const end = found ? now + RESTART_MS : (began ??= now) + START_MS;
  for (;;) {
    const adapter = await gpu.requestAdapter({ powerPreference: "high-performance" });
    if (adapter) return ((found = true), adapter);
    if (performance.now() >= end) return null;
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}
