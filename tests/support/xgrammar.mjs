// The mask engine in Node, and its vocabulary of bytes.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

/** XGrammar's classes. */
export function load(file) {
  const loaded = { exports: {} };
  const run = new Function("exports", "module", "require", "__filename", readFileSync(file, "utf8"));
  run(loaded.exports, loaded, createRequire(file), file);
  return loaded.exports;
}

/** A token for each byte; those that no UTF-8 text has are empty. */
export const BYTES = [...Array(256).keys()].map((byte) =>
  byte === 0xc0 || byte === 0xc1 || byte >= 0xf5 ? new Uint8Array() : Uint8Array.of(byte),
);
