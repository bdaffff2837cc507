/** Where the service worker stores what was shared with Wisp (sw/share.js), until the page takes it (ui/launch.js). */

/** @param {string} scope address of the page's folder */
export const openSharedForms = (scope) => caches.open(`wisp-shared ${scope}`);

/** The address of a form in it. @param {string} id @param {string} scope */
export const sharedFormUrl = (id, scope) => new URL(`share/${id}`, scope).href;
