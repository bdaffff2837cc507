/**
 * An SVG drawing as a picture. A browser runs no script of a picture and fetches nothing for it, so that it needs neither a
 * frame nor a click.
 */
import { t } from "../../language/phrase.js";
import { h } from "../dom.js";
import { urlOf } from "../media/medium.js";
import { isCheap } from "./svg_cost.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const MOST = 200_000; // characters
const ACTS = /<script|<a[\s>]|<foreignObject|\son\w+\s*=/i; // what a picture does not show

/** The picture; null: the code is not one, or it is several, costly, or more than a picture. @param {string} code */
export function svgPicture(code) {
  const root = code.length <= MOST && !ACTS.test(code) ? rootOf(code) : null;
  if (!root || !isCheap(root)) return null;
  const blob = new Blob([new XMLSerializer().serializeToString(root)], { type: "image/svg+xml" });
  const title = root.querySelector("title")?.textContent?.trim();
  const image = h("img", { class: "artifact-picture", src: urlOf(blob), alt: title || t("Preview of the code") });
  blobs.set(image, blob);
  return image;
}

/** @type {WeakMap<HTMLElement, Blob>} the address of a blob works as long as the blob is referenced */
const blobs = new WeakMap();

/** The drawing, if it is the only one; HTML's rules read what is no XML, such as one without its namespace. @param {string} code */
function rootOf(code) {
  const { documentElement } = new DOMParser().parseFromString(code, "image/svg+xml");
  if (documentElement.namespaceURI === NAMESPACE && documentElement.localName === "svg") return documentElement;
  const parsed = new DOMParser().parseFromString(code, "text/html");
  const [drawing, ...others] = parsed.querySelectorAll("svg:not(svg svg)");
  return drawing && !others.length ? drawing : null;
}
