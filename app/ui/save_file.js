import { t } from "../language/phrase.js";
import { h } from "./dom.js";
import { announce } from "./notices.js";

const READ_MS = 60_000; // time for the browser to read the file

/** Saves a file where the browser saves downloads. @param {string} name @param {BlobPart[]} parts */
export function saveFile(name, parts) {
  const blob = new Blob(parts, { type: "application/octet-stream" }); // a type that no browser opens as a page
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), READ_MS);
  announce(t("{name} is saved.", { name }));
}
