/** Addresses of files, as users write them. */
import { decoded } from "../sdk/percent.js";

/** @param {string} text */
export function isAddress(text) {
  return /^(https?:\/\/|\.{0,2}\/)\S+$/i.test(text);
}

/** A file's name without path and extension. @param {string} url */
export function nameOf(url) {
  const last = url.split(/[?#]/)[0].split("/").at(-1) || url;
  return decoded(last).replace(/\.gguf$/i, "");
}
