/**
 * What the engine's Python finds in `globalThis`:
 *   wispRequestAdapter, wispMakesHalfBits   py_engine/gpu/adapter.js, half_bits.js
 *   wispReplay, wispPages, wispUpload       py_engine/gpu/replay.js, pages.js, upload.js
 *   wispProof                               py_engine/proof/dispatches.js
 *   wispCompute                             py_engine/cpu/compute.js
 *   wispShards, wispTextStore               py_engine/files/shards.js, text_store.js
 *   wispHashes       hash-wasm, for wispShards
 *   wispAssets       URLs: {grammar, media, cpu}, and in the page's worker those it was booted with (boot.js)
 *   wispMedia        () => Promise; imports py_engine/media/media.js on first use
 *   wispDecodeSound  (bytes, rate) => Promise<Float32Array>, mono, so many samples a second
 *   wispReadPdf      (bytes, signal) => Promise<string>, the text; only where pages are
 *   wispReadVideo    (bytes, fps, most, signal) => Promise<{seconds, bytes}[]>, pictures; only where pages are
 *   wispStartTrial   (url) => Trial | null, of app/answers/grammar_trial.js; only where pages are
 *   wispLoadPackage  (name) => Promise; loads a compiled wheel (numpy) on first use
 *   wispImport       (url) => Promise; imports a JavaScript module
 */
import { createSHA256, createXXHash64 } from "hash-wasm";
import { Compute } from "../py_engine/cpu/compute.js";
import * as wispShards from "../py_engine/files/shards.js";
import { requestAdapter } from "../py_engine/gpu/adapter.js";
import { makesHalfBits } from "../py_engine/gpu/half_bits.js";
import { Pages } from "../py_engine/gpu/pages.js";
import { Replay } from "../py_engine/gpu/replay.js";
import { Upload } from "../py_engine/gpu/upload.js";
import * as wispProof from "../py_engine/proof/dispatches.js";
import { makeSpaceBy } from "./storage/space.js";
import * as wispTextStore from "./text_store.js";

/**
 * @typedef {{ grammar: string, media: string, cpu: import("../py_engine/cpu/compute.js").Modules }} EngineAssets
 *
 * @param {EngineAssets} assets
 * @param {(name: string) => Promise<unknown>} loadPackage
 * @param {Record<string, (...given: any) => any>} others what pages do for a worker: wispDecodeSound, wispReadPdf, wispReadVideo, wispStartTrial
 */
export function provide(assets, loadPackage, others) {
  makeSpaceBy(wispShards.freePrefixes);
  const wispHashes = { createSHA256, createXXHash64 };
  Object.assign(globalThis, {
    wispReplay: Replay,
    wispPages: Pages,
    wispUpload: Upload,
    wispCompute: Compute,
    wispProof,
  });
  Object.assign(globalThis, {
    wispRequestAdapter: requestAdapter,
    wispMakesHalfBits: makesHalfBits,
    wispShards,
    wispTextStore,
    wispHashes,
    wispAssets: assets,
  });
  Object.assign(globalThis, {
    wispLoadPackage: loadPackage,
    wispImport: (/** @type {string} */ url) => import(url),
    wispMedia: () => import(assets.media),
    ...others,
  });
}
