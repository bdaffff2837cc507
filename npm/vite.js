/** A Vite plugin that publishes Wisp's files: `plugins: [wisp()]` in vite.config.js. */
import { createReadStream, readFileSync, readdirSync, statSync } from "node:fs";
import { extname, join, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";

const ENGINE = fileURLToPath(new URL("./engine/", import.meta.url));
const TYPES = {
  ".js": "text/javascript",
  ".mjs": "text/javascript",
  ".wasm": "application/wasm",
  ".json": "application/json",
};

/** The files of engine/, with slashes. */
const files = () =>
  readdirSync(ENGINE, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(ENGINE, join(entry.parentPath, entry.name)).split(sep).join("/"));

/** @param {{ folder?: string }} [options] the folder of the site that gets the files; load() gets its address, if it is another */
export function wisp({ folder = "wisp" } = {}) {
  const names = new Set(files());
  return {
    name: "wisp",
    /** Serves the files in development. @param {any} server */
    configureServer(server) {
      server.middlewares.use(
        (/** @type {any} */ request, /** @type {any} */ response, /** @type {() => void} */ next) => {
          const path = new URL(request.url, "http://localhost").pathname.split(`/${folder}/`).at(-1) ?? "";
          if (!names.has(path)) return next();
          const type = TYPES[/** @type {keyof typeof TYPES} */ (extname(path))] ?? "application/octet-stream";
          response.setHeader("Content-Type", type);
          response.setHeader("Content-Length", statSync(join(ENGINE, path)).size);
          createReadStream(join(ENGINE, path)).pipe(response);
        },
      );
    },
    /** Adds the files to a build. @this {any} */
    generateBundle() {
      for (const path of names)
        this.emitFile({ type: "asset", fileName: `${folder}/${path}`, source: readFileSync(join(ENGINE, path)) });
    },
  };
}
