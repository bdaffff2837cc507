// Bundles the page's JavaScript and CSS with esbuild in one process.
// stdin: {root, entries: [{name, file, format}]}.
// stdout: {outputs: {name: text}, packages: the names of the npm packages that are in the outputs}.
// /wisp.js keeps its stable address, so that other pages can import it: the page's bundle refers to it
// instead of carrying a second copy.
import { readFileSync } from "node:fs";
import { build } from "esbuild";
import { pdfLimits } from "./pdf_limits.mjs";

/** @type {{root: string, entries: {name: string, file: string, format: "esm" | "iife"}[]}} */
const { root, entries } = JSON.parse(readFileSync(0, "utf8"));

/** @type {import("esbuild").Plugin} */
const stableSdk = {
  name: "stable-sdk",
  setup(setup) {
    setup.onResolve({ filter: /(^|\/)wisp\.js$/ }, (args) =>
      args.kind === "entry-point" ? undefined : { path: "../wisp.js", external: true },
    );
  },
};

const built = await Promise.all(
  entries.map((entry) =>
    build({
      entryPoints: [entry.file],
      absWorkingDir: root,
      bundle: true,
      minify: true,
      write: false,
      metafile: true,
      format: entry.format,
      target: ["chrome119", "firefox120", "safari17"],
      charset: "utf8",
      legalComments: "eof",
      logLevel: "silent",
      plugins: [stableSdk, pdfLimits],
      // XGrammar imports these of Node, but never in a browser; tools/fonts.py publishes fonts
      external: ["module", "url", "*.woff2", "*.woff", "*.ttf"],
    }).catch((error) => {
      console.error(`error: ${error.message}`);
      process.exit(1);
    }),
  ),
);

/** @type {Record<string, string>} */
const outputs = {};
entries.forEach((entry, i) => {
  outputs[entry.name] = built[i].outputFiles[0].text;
});
const inputs = built.flatMap(({ metafile }) => Object.values(metafile.outputs).flatMap((o) => Object.keys(o.inputs)));
const packages = inputs.map((path) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1]).filter(Boolean);
process.stdout.write(JSON.stringify({ outputs, packages: [...new Set(packages)].sort() }));
