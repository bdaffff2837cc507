/** Inside the frame of a preview: draws a Mermaid diagram. A bundle of its own, which artifact.js puts into the frame. */
import mermaid from "mermaid";

/** @param {string} text @param {boolean} dark @param {string} mistake says that it cannot be drawn */
async function drawDiagram(text, dark, mistake) {
  const place = /** @type {HTMLElement} */ (document.getElementById("diagram"));
  const theme = dark ? "dark" : "default";
  mermaid.initialize({ startOnLoad: false, securityLevel: "strict", suppressErrorRendering: true, theme });
  try {
    place.innerHTML = (await mermaid.render("drawing", text)).svg;
  } catch (error) {
    place.textContent = `${mistake} ${error instanceof Error ? error.message : error}`;
    place.style.whiteSpace = "pre-wrap";
  }
}

Object.assign(globalThis, { drawDiagram });
