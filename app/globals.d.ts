/** Constants that the build defines: URLs relative to wisp.js, and the files that the service worker caches. */
declare const __WISP_ASSETS__: {
  worker: string;
  downloads: string;
  pyodide: string;
  zip: string;
  snapshot: string;
  library: string;
  packages: string;
  wheels: string[];
  whole: { library: string; numpy: string };
  catalog: string;
  grammar: string;
};
declare const __WISP_PRECACHE__: { version: string; files: string[]; onUse: string[] };
