/**
 * What the worker gives to Python to move a model's bytes: HTTP -> ArrayBuffer, IndexedDB <-> ArrayBuffer, hashes; and
 * stored prefixes. download.py, shards.py and prefixes.py decide what to download, store, check or retry. No byte passes
 * through the WASM heap.
 */

export * from "./buffers.js";
export * from "./checksum.js";
export * from "./download_lock.js";
export * from "./download_workers.js";
export * from "./file_hash.js";
export * from "./http.js";
export * from "./model_database.js";
export { dropParts, listParts, readPart } from "./parts_database.js";
export * from "./prefix_database.js";
export { PrefixReader } from "./prefix_reader.js";
export { getChoice, putChoice } from "../tuning/choices.js";
