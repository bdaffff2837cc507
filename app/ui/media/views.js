/** How media are shown in the thread: pictures that open in a dialog, and sounds that play. */
import { joined, t } from "../../language/phrase.js";
import { byId, h } from "../dom.js";
import { pictures, playingTime, tokens } from "../format.js";
import { icon } from "../icons.js";
import { urlOf } from "./medium.js";
import { framesIn } from "./video_frames.js";
import { drawing } from "./wave.js";

/** @typedef {import("../chats/database.js").Medium} Medium */

/** The media of a question; null: it has none. @param {Medium[] | undefined} media */
export function mediaList(media) {
  if (!media?.length) return null;
  return h("ul", { class: "media" }, ...media.map((medium) => h("li", {}, shown(medium))));
}

/** @param {Medium} medium */
function shown(medium) {
  if (medium.kind === "audio") {
    const name = t("Sound: {name}", { name: medium.name });
    return h("audio", { controls: true, preload: "metadata", src: urlOf(medium.blob), "aria-label": name });
  }
  if (medium.kind === "video") return film(medium);
  // A question has no drawing, but one that a file of chats has could take minutes to draw.
  if (medium.kind === "file" || medium.blob.type === "image/svg+xml") return fileLink(medium);
  return pictureButton(medium);
}

/** A video: what models see of it. @param {Medium} medium */
function film(medium) {
  const { name, seconds, frames = [], tokens: cost } = medium;
  const about = [name, seconds && playingTime(seconds), pictures(frames.length), cost && tokens(cost)];
  const shots = framesIn(medium).map((frame) => {
    const time = playingTime(Math.floor(frame.seconds));
    const one = { kind: /** @type {const} */ ("image"), name: `${name} ${time}`, blob: frame.blob };
    return h("li", {}, pictureButton(one), h("small", {}, time));
  });
  return h("figure", { class: "film" }, h("ul", {}, ...shots), h("figcaption", { dir: "auto" }, joined(about)));
}

/** Pictures that are known to cost little to draw; null: there are none. @param {Medium[]} media */
export function pictureList(media) {
  if (!media.length) return null;
  return h("ul", { class: "media" }, ...media.map((medium) => h("li", {}, pictureButton(medium))));
}

/** @param {Medium} medium */
function pictureButton(medium) {
  const open = () => showPicture(medium);
  const label = t("Show {name}", { name: medium.name });
  return h("button", { type: "button", class: "picture", "aria-label": label, on: { click: open } }, picture(medium));
}

/** A file to download; its type is left out, so that it cannot be opened as a page. @param {{ name: string, blob: Blob }} file */
export function fileLink({ name, blob }) {
  const plain = new Blob([blob], { type: "application/octet-stream" });
  const anchor = h("a", { class: "file-link", href: urlOf(plain), download: name, icon: "fetch" }, name);
  downloads.set(anchor, plain);
  return anchor;
}

/** @type {WeakMap<HTMLElement, Blob>} the address of a blob works as long as the blob is referenced */
const downloads = new WeakMap();

/** @param {Medium} medium */
export function picture(medium) {
  return h("img", { src: urlOf(medium.blob), alt: medium.name, decoding: "async", draggable: false });
}

/** A small view of a medium. @param {Medium} medium */
export function thumbnail(medium) {
  if (medium.kind === "image") return picture(medium);
  if (medium.kind === "video") return filmThumbnail(medium);
  if (medium.kind === "file")
    return h("span", { class: "clip", title: medium.name }, icon("file"), h("span", {}, medium.name));
  const length = medium.seconds === undefined ? "" : playingTime(medium.seconds);
  return h("span", { class: "clip", title: joined([medium.name, length]) }, drawing(medium.peaks ?? []), length);
}

/** @param {Medium} medium */
function filmThumbnail(medium) {
  const { name, seconds = 0 } = medium;
  const [first] = framesIn(medium);
  const shown = first && picture({ kind: "image", name, blob: first.blob });
  return h("span", { class: "film-thumbnail", title: name }, shown, h("span", {}, icon("play"), playingTime(seconds)));
}

/** @param {Medium} medium */
function showPicture(medium) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("picture-dialog"));
  byId("picture-title").textContent = medium.name;
  byId("picture-shown").replaceChildren(picture(medium));
  dialog.showModal();
}
