/**
 * Loads Wisp's SDK from where its files are served: the folder engine/ of this package, which the Vite plugin (vite.js)
 * publishes as wisp/. The engine's worker, WebAssembly and Python lie beside the SDK, so no bundler may move it.
 * @param {string | URL} [base] the folder's address; default: wisp/ beside the page
 * @returns {Promise<typeof import("./types/wisp.js")>}
 */
export const load = (base = "wisp/") => from(base, "wisp.js");

/**
 * Loads the Prompt API, in the same way.
 * @param {string | URL} [base] @returns {Promise<typeof import("./types/sdk/prompt_api.js")>}
 */
export const loadPromptApi = (base = "wisp/") => from(base, "prompt-api.js");

/** Defines <wisp-chat>, in the same way. @param {string | URL} [base] @returns {Promise<unknown>} */
export const defineChat = (base = "wisp/") => from(base, "wisp-chat.js");

/** @param {string | URL} base @param {string} name @returns {Promise<any>} */
const from = (base, name) =>
  import(/* @vite-ignore */ /* webpackIgnore: true */ new URL(name, new URL(base, document.baseURI)).href);
