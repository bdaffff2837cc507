/** What the build puts in: URLs relative to wisp.js, and the files the service worker keeps. */
declare const __WISP_ASSETS__: {
  worker: string;
  pyodide: string;
  zip: string;
  snapshot: string;
  wheels: string[];
  catalog: string;
  grammar: string;
};
declare const __WISP_PRECACHE__: { version: string; files: string[] };
