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
  media: string;
  pdf: { reader: string; worker: string };
  mcp: string;
  cpu: import("../py_engine/cpu/compute.js").Modules;
};
declare const __WISP_PRECACHE__: { version: string; files: string[]; onUse: string[] };

/** The page's language, shared by its bundles (app/language/phrase.js). */
declare var wispPdf: import("./retrieval/pdf_memory.js").Counts;
declare var wispLanguage: { current: import("./language/phrase.js").Language } | undefined;
/** Where phrases are shown, shared by the page's bundles (app/ui/texts.js). */
declare var wispPhrases: WeakMap<Node, Map<string, () => void>> | undefined;
