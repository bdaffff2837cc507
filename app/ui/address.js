/** Addresses of files, as users write them. */
import { repositoryOf } from "../sdk/address.js";
import { decoded } from "../sdk/percent.js";

/** @param {string} text */
export function isAddress(text) {
  return /^(https?:\/\/|\.{0,2}\/)\S+$/i.test(text);
}

/** A typed address, with https:// where it has no scheme. @param {string} text */
export const completed = (text) =>
  /^[\w-]+(\.[\w-]+)+(:\d+)?\/(\S+\/\S|\S+\.gguf$)/i.test(text) ? `https://${text}` : text;

/** The id of a repository of the hub that a user typed, or the address of its page; null: it is none. @param {string} text */
export const typedRepository = (text) =>
  repositoryOf(text) ?? (/^[\w-][\w.-]*\/[\w.-]+$/.test(text) && !/\.gguf$/i.test(text) ? text : null);

/** A file's name without path, number in a set and extension. @param {string} url */
export function nameOf(url) {
  const last = url.split(/[?#]/)[0].split("/").at(-1) || url;
  return setName(decoded(last).replace(/\.gguf$/i, ""));
}

/** The name of a model, from that of any file of its set. @param {string} name without extension */
export const setName = (name) => name.replace(/-\d{5}-of-\d{5}$/i, "");
