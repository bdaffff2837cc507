// Has pdf.js count the memory of the objects that it makes (app/retrieval/pdf_memory.js). Its source has no limits and no
// hooks for them, so calls are put into it. A pdf.js that has changed at one of these places does not build.
import { readFile } from "node:fs/promises";

const NOTE = "/*! Changed by Wisp: it counts the memory of its objects. */\n";

/** Bytes, as V8 has them. `use`: until the next message, `cache`: until the next cleanup, `keep`: until the file is read. */
const PLACES = /** @type {[at: string, times: number, put: string, where?: "before"][]} */ ([
  // what is parsed
  [
    "class Parser {\n  #imageCache = null;",
    1,
    "wispSize = 0;\n  use(size) { this.wispSize += size; wispPdf.use(size); }",
  ],
  ["            array.push(this.getObj(cipherTransform));", 1, "this.use(16);"],
  ["          const array = [];\n", 1, "this.use(32);"],
  ["          const dict = new Dict(this.xref);", 1, "this.use(200);"],
  ["            dict.set(key, this.getObj(cipherTransform));", 1, "this.use(48);"],
  ['    if (typeof buf1 === "string") {', 1, "this.use(24 + 2 * buf1.length);"],
  ["      let charBuffered = false;", 1, "wispPdf.hold(8 * strBuf.length);"],
  ["        digit = toHexDigit(ch);", 1, "wispPdf.hold(8 * strBuf.length);"],
  // what is cached of it
  ["      this.#cacheMap.set(num, xrefEntry);", 1, "wispPdf.keep(parser.wispSize);"],
  [
    "        this.#cacheMap.set(num, obj);\n      }\n    }\n    xrefEntry",
    1,
    "wispPdf.keep(parser.wispSize);\n",
    "before",
  ],
  ["        this.#entries[first + i] ??= entry;", 2, "wispPdf.keep(48);"],
  ["      NameCache.set(name, n);", 1, "wispPdf.cache(80 + 2 * name.length);"],
  ["      CmdCache.set(cmd, c);", 1, "wispPdf.cache(80 + 2 * cmd.length);"],
  ["      RefCache.set(str, ref);", 1, "wispPdf.cache(120);"],
  // fonts
  ["    this.loadedName = loadedName;\n    this.font = font;\n    this.dict = dict;", 1, "wispPdf.cache(16_000);"],
  ["    this.#mappedEntries += count;", 1, "wispPdf.cache(96 * count);"],
  ["    this.#map.set(src, dst);", 1, "wispPdf.cache(96 + 2 * (dst?.length ?? 0));"],
  ["              for (let j = start; j <= code; j++) {", 1, "wispPdf.cache(16 * (code - start));\n", "before"],
  [
    "            for (let j = start; j <= code; j++) {\n              glyphsWidths",
    1,
    "wispPdf.cache(16 * (code - start));\n",
    "before",
  ],
  ["      const cmapMappings = cmapTable.mappings;", 1, "wispPdf.cache(48 * cmapMappings.length);"],
  // the text
  ["          textChunk.str.push(glyphUnicode);", 1, "wispPdf.use(8 + 2 * glyphUnicode.length);"],
]);

/** @param {string} source of pdf.js's worker @returns {string} */
function counting(source) {
  for (const [at, times, put, where] of PLACES) {
    const found = source.split(at).length - 1;
    if (found !== times) throw new Error(`pdf.js has ${found} places like ${JSON.stringify(at)}, not ${times}.`);
    source = source.replaceAll(at, () => (where ? put + at : at.endsWith("\n") ? `${at}${put}\n` : `${at}\n${put}`));
  }
  return NOTE + source;
}

/** @type {import("esbuild").Plugin} */
export const pdfLimits = {
  name: "pdf-limits",
  setup(setup) {
    setup.onLoad({ filter: /pdfjs-dist[\\/]legacy[\\/]build[\\/]pdf\.worker\.mjs$/ }, async ({ path }) => ({
      contents: counting(await readFile(path, "utf8")),
      loader: "js",
    }));
  },
};
