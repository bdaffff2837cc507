/** Addresses of files, as users write them. */
import { decoded } from "../sdk/percent.js";

/** @param {string} text */
export function isAddress(text) {
  return /^(https?:\/\/|\.{0,2}\/)\S+$/i.test(text);
}

/** A file's name without path, number in a set and extension. @param {string} url */
export function nameOf(url) {
  const last = url.split(/[?#]/)[0].split("/").at(-1) || url;
  return setName(decoded(last).replace(/\.gguf$/i, ""));
}

/** The name of a model, from that of any file of its set. @param {string} name without extension */
export const setName = (name) => name.replace(/-\d{5}-of-\d{5}$/i, "");
