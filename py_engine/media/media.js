/** What decoder.py asks JavaScript for: one bundle, imported when the first picture or sound arrives. */
export { hashes } from "./hashes.js";
export { decode } from "./pictures.js";
export { follow } from "./recipe.js";
export { readWav, toMono } from "./sound.js";
