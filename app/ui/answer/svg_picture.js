/**
 * An SVG drawing as a picture. Browsers run no script of a picture and fetch nothing for it, so it needs no frame and no
 * click.
 */
import { t } from "../../language/phrase.js";
import { h } from "../dom.js";
import { urlOf } from "../media/medium.js";
import { isCheap } from "./svg_cost.js";

const NAMESPACE = "http://www.w3.org/2000/svg";
const MOST = 200_000; // characters
const MOST_OF_FILE = 5_000_000; // bytes of a tool's, such as a plot
const ACTS = /<script|<a[\s>]|<foreignObject|\son\w+\s*=/i; // what would not work in a picture
const ENTITY = /<!ENTITY/i; // a name for a text, which may stand for gigabytes before the parser refuses them

/** The picture; null if the code is no single drawing, costs too much to draw, or needs scripts or links. @param {string} code */
export function svgPicture(code) {
  const root = code.length <= MOST && !ACTS.test(code) ? cheapRoot(code) : null;
  if (!root) return null;
  const blob = new Blob([new XMLSerializer().serializeToString(root)], { type: "image/svg+xml" });
  const title = root.querySelector("title")?.textContent?.trim();
  const image = h("img", { class: "artifact-picture", src: urlOf(blob), alt: title || t("Preview of the code") });
  blobs.set(image, blob);
  return image;
}

/** Whether a file, which is no code of an answer, is a drawing that costs little to draw. @param {Blob} file */
export async function isQuickSvg(file) {
  return file.size <= MOST_OF_FILE && cheapRoot(await file.text()) !== null;
}

/** The drawing, unless it costs too much to read or to draw. @param {string} code */
function cheapRoot(code) {
  const root = ENTITY.test(code) ? null : rootOf(code);
  return root && isCheap(root) ? root : null;
}

/** @type {WeakMap<HTMLElement, Blob>} keeps each blob referenced, as its address works only so long */
const blobs = new WeakMap();

/** The drawing, if it is the only one. What is no valid XML, such as SVG without its namespace, is parsed as HTML. @param {string} code */
function rootOf(code) {
  const { documentElement } = new DOMParser().parseFromString(code, "image/svg+xml");
  if (documentElement.namespaceURI === NAMESPACE && documentElement.localName === "svg") return documentElement;
  const parsed = new DOMParser().parseFromString(code, "text/html");
  const [drawing, ...others] = parsed.querySelectorAll("svg:not(svg svg)");
  return drawing && !others.length ? drawing : null;
}
