/**
 * Whether the page is being left. The browser then ends its fetches: what fails for that has not failed. The page may be
 * shown again, from the browser's back/forward cache.
 */

let left = false;
addEventListener("pagehide", () => (left = true));
addEventListener("pageshow", () => (left = false));

export const isLeft = () => left;

/** Resolves when the page is shown again. @returns {Promise<void>} */
export const isBack = () => new Promise((resolve) => addEventListener("pageshow", () => resolve(), { once: true }));
