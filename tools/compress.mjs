// Compresses files with Brotli and gzip, several at once.
// stdin: {files: [path], quality: Brotli's, 0 to 11}. Writes PATH.br and PATH.gz beside each.
import { readFileSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { promisify } from "node:util";
import { brotliCompress, constants, gzip } from "node:zlib";

const { files, quality } = JSON.parse(readFileSync(0, "utf8"));
await Promise.all(
  files.map(async (/** @type {string} */ path) => {
    const data = await readFile(path);
    const params = {
      [constants.BROTLI_PARAM_QUALITY]: quality,
      [constants.BROTLI_PARAM_LGWIN]: constants.BROTLI_MAX_WINDOW_BITS,
      [constants.BROTLI_PARAM_SIZE_HINT]: data.length,
    };
    await writeFile(`${path}.br`, await promisify(brotliCompress)(data, { params }));
    await writeFile(`${path}.gz`, await promisify(gzip)(data, { level: quality < 11 ? 6 : 9 }));
  }),
);
