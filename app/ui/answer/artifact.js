/**
 * Previews HTML, SVG and Mermaid that a model wrote: artifact.html shows it in a frame of an opaque origin, without
 * network, storage or access to the page.
 */
import { t } from "../../language/phrase.js";
import { h, iconButton } from "../dom.js";
import { partUrl } from "../parts.js";
import { say } from "../texts.js";

/** @typedef {(code: string) => string | Promise<string>} Draw makes the document of a preview */

const STYLE = `<style>
  body { display: grid; place-items: center; box-sizing: border-box; min-height: 100vh; margin: 0; padding: 1rem; font: 1rem system-ui }
  svg { max-width: 100%; max-height: calc(100vh - 2rem); height: auto }
</style>`;

// No policy of a <meta> governs WebRTC: the header Connection-Allowlist does (tools/headers.py), where host and browser know it.
const WITHOUT_PEERS = `<!doctype html><script>
  for (const name of ["RTCPeerConnection", "webkitRTCPeerConnection"]) delete globalThis[name];
  document.currentScript.remove();
</script>`;

/** @type {Record<string, Draw>} by the language of the code */
const DRAW = {
  html: (code) => code,
  svg: (code) => page(code),
  mermaid,
};

/** @param {string} language as the answer names it @param {string} code @returns {Draw | undefined} */
function drawing(language, code) {
  const name = language.toLowerCase();
  if (/^(xml|)$/.test(name) && /^\s*(<\?xml[^>]*>\s*)?<svg[\s>]/i.test(code)) return DRAW.svg;
  if (/^(htm|xhtml|)$/.test(name) && /^\s*<(!doctype html|html)[\s>]/i.test(code)) return DRAW.html;
  return Object.hasOwn(DRAW, name) ? DRAW[name] : undefined;
}

/**
 * A button that shows a block of code as what it draws; null for other code.
 * @param {string} language @param {() => string} code @param {HTMLElement} block of the code
 * @returns {HTMLElement | null}
 */
export function previewOf(language, code, block) {
  const draw = partUrl("artifact") ? drawing(language, code()) : undefined;
  if (!draw) return null;
  /** @type {HTMLElement | null} */
  let shown = null;
  const toggle = () => {
    if (shown) shown.remove();
    shown = shown ? null : preview(draw, code());
    if (shown) block.append(shown);
    block.classList.toggle("previewing", shown !== null);
    say(button, shown ? t("Code") : t("Preview"));
  };
  const button = h("button", { type: "button", class: "text-button", on: { click: toggle } }, t("Preview"));
  return button;
}

/** @param {Draw} draw @param {string} code */
function preview(draw, code) {
  const frame = h("iframe", { class: "artifact-frame", title: t("Preview of the code"), src: partUrl("artifact") });
  const note = h("p", { class: "artifact-note" }, t("Runs without network, and without access to this page."));
  const whole = iconButton("expand", t("Full screen"), () => void frame.requestFullscreen());
  const made = Promise.resolve(code).then(draw);
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
  return h("div", { class: "artifact" }, frame, h("div", { class: "artifact-foot" }, note, whole));
}

/** @param {string} body @param {boolean} [dark] */
function page(body, dark = false) {
  const scheme = dark ? "<style>:root { color-scheme: dark; background: #182026; color: #e6ebea }</style>" : "";
  return `<!doctype html><meta charset="utf-8">${STYLE}${scheme}${body}`;
}

/** A diagram that Mermaid draws inside the frame, which gets its source as text. @type {Draw} */
async function mermaid(code) {
  const response = await fetch(partUrl("mermaid") ?? "").catch(() => null);
  if (!response?.ok)
    throw new Error(`${t("Mermaid, which draws diagrams, cannot be loaded. Check the connection and try again.")}`);
  const library = inScript(await response.text());
  const dark = prefersDark();
  const mistake = JSON.stringify(String(t("The diagram has a mistake.")));
  const call = inScript(`drawDiagram(${JSON.stringify(code)}, ${dark}, ${mistake})`);
  return page(`<div id="diagram"></div><script>${library}</script><script>${call}</script>`, dark);
}

function prefersDark() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Code whose strings neither end the script element nor begin a comment in it. @param {string} code */
function inScript(code) {
  return code.replace(/<(?=!--|\/?script)/gi, "\\x3c");
}
