/**
 * Previews HTML, SVG and Mermaid that a model wrote: artifact.html shows it in a frame of an opaque origin, without
 * network, storage or access to the page. SVG that only draws is shown at once, as a picture.
 */
import { t } from "../../language/phrase.js";
import { isDark, onDark } from "../dark.js";
import { h, iconButton } from "../dom.js";
import { partUrl } from "../parts.js";
import { say } from "../texts.js";
import { svgPicture } from "./svg_picture.js";

/**
 * @typedef {(code: string, dark: boolean) => string | Promise<string>} Draw makes the document of a preview
 * @typedef {{ element: HTMLElement, end: () => void }} Shown a preview; call `end` when it is removed
 */

const STYLE = `<style>
  body { display: grid; place-items: center; box-sizing: border-box; min-height: 100vh; margin: 0; padding: 1rem; font: 1rem system-ui }
  svg { max-width: 100%; max-height: calc(100vh - 2rem); height: auto }
</style>`;
const DARK = "<style>:root { color-scheme: dark; background: #182026; color: #e6ebea }</style>";

// No policy of a <meta> governs WebRTC: the header Connection-Allowlist does (tools/headers.py), where host and browser know it.
const WITHOUT_PEERS = `<!doctype html><script>
  for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection"]) delete globalThis[name];
  document.currentScript.remove();
</script>`;

// A document that names no colours is dark in a dark page. Any other was made for a white page.
const COLOURS = /colou?r|background|fill|stroke|canvas|<(?:svg|img|link|video|iframe)\b/i;

/** @type {Record<string, Draw>} by the language of the code */
const DRAW = {
  html: (code, dark) => (dark ? DARK + code : code),
  svg: (code) => page(code),
  mermaid,
};

/** Whether a preview is dark in a dark page. @param {Draw} draw @param {string} code */
const canBeDark = (draw, code) => draw === DRAW.mermaid || (draw === DRAW.html && !COLOURS.test(code));

/** @param {string} language as the answer names it @param {string} code @returns {Draw | undefined} */
function drawing(language, code) {
  const name = language.toLowerCase();
  if (/^(xml|)$/.test(name) && /^\s*(<\?xml[^>]*>\s*)?<svg[\s>]/i.test(code)) return DRAW.svg;
  if (/^(htm|xhtml|)$/.test(name) && /^\s*<(!doctype html|html)[\s>]/i.test(code)) return DRAW.html;
  return Object.hasOwn(DRAW, name) ? DRAW[name] : undefined;
}

/**
 * The preview of a block of code, and the button that shows it; null for code that draws nothing.
 * @param {string} language @param {() => string} code @param {HTMLElement} block of the code
 * @returns {{ button: HTMLElement, end: () => void } | null} `end` removes the preview
 */
export function previewOf(language, code, block) {
  const draw = partUrl("artifact") ? drawing(language, code()) : undefined;
  if (!draw) return null;
  const picture = draw === DRAW.svg ? svgPicture(code()) : null;
  /** @type {Shown | null} */
  let shown = null;
  const end = () => {
    shown?.end();
    shown?.element.remove();
  };
  const toggle = () => {
    end();
    shown = shown ? null : picture ? framed(picture) : preview(draw, code());
    if (shown) block.append(shown.element);
    block.classList.toggle("previewing", shown !== null);
    say(button, shown ? t("Code") : t("Preview"));
  };
  const button = h("button", { type: "button", class: "text-button", on: { click: toggle } }, t("Preview"));
  if (picture) toggle();
  return { button, end };
}

/** @param {HTMLElement} picture @returns {Shown} */
function framed(picture) {
  const foot = h("div", { class: "artifact-foot" }, h("span"), fullScreen(picture));
  return { element: h("div", { class: "artifact" }, picture, foot), end: () => {} };
}

/** @param {HTMLElement} element */
const fullScreen = (element) => iconButton("expand", t("Full screen"), () => void element.requestFullscreen());

/** A preview that is drawn again when the page becomes dark or light. @param {Draw} draw @param {string} code @returns {Shown} */
function preview(draw, code) {
  if (!canBeDark(draw, code)) return { element: drawn(draw, code, false), end: () => {} };
  const element = h("div", {}, drawn(draw, code, isDark()));
  return { element, end: onDark(() => element.replaceChildren(drawn(draw, code, isDark()))) };
}

/** @param {Draw} draw @param {string} code @param {boolean} dark */
function drawn(draw, code, dark) {
  const style = dark ? "artifact-frame dark" : "artifact-frame";
  const frame = h("iframe", { class: style, title: t("Preview of the code"), src: partUrl("artifact") });
  const note = h("p", { class: "artifact-note" }, t("Runs without network, and without access to this page."));
  const made = Promise.resolve(code).then((code) => draw(code, dark));
  const listen = async (/** @type {MessageEvent} */ { source, origin }) => {
    if (source !== frame.contentWindow || origin !== location.origin) return;
    removeEventListener("message", listen);
    try {
      frame.contentWindow?.postMessage({ artifact: WITHOUT_PEERS + (await made) }, location.origin);
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      say(note, t("It cannot be shown: {why}", { why }));
      frame.remove();
    }
  };
  addEventListener("message", listen);
  return h("div", { class: "artifact" }, frame, h("div", { class: "artifact-foot" }, note, fullScreen(frame)));
}

/** @param {string} body @param {boolean} [dark] */
function page(body, dark = false) {
  return `<!doctype html><meta charset="utf-8">${STYLE}${dark ? DARK : ""}${body}`;
}

/** A diagram that Mermaid draws inside the frame, which gets its source as text. @type {Draw} */
async function mermaid(code, dark) {
  const response = await fetch(partUrl("mermaid") ?? "").catch(() => null);
  if (!response?.ok)
    throw new Error(`${t("Mermaid, which draws diagrams, cannot be loaded. Check the connection and try again.")}`);
  const library = inScript(await response.text());
  const mistake = JSON.stringify(String(t("The diagram has a mistake.")));
  const call = inScript(`drawDiagram(${JSON.stringify(code)}, ${dark}, ${mistake})`);
  return page(`<div id="diagram"></div><script>${library}</script><script>${call}</script>`, dark);
}

/** Code whose strings neither end the script element nor begin a comment in it. @param {string} code */
function inScript(code) {
  return code.replace(/<(?=!--|\/?script)/gi, "\\x3c");
}
