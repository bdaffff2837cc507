/** Whether the page is being left. The browser then ends its fetches: what fails for that has not failed. */

let left = false;
addEventListener("pagehide", () => (left = true));
addEventListener("pageshow", () => (left = false));

export const isLeft = () => left;
