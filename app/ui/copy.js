import { icon } from "./icons.js";
import { announce } from "./notices.js";
import { iconButton } from "./dom.js";

/**
 * A button that copies a text and shows for a moment that it did.
 * @param {string} label @param {() => string} text
 */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      return announce("The browser did not allow copying.");
    }
    button.replaceChildren(icon("check"));
    button.classList.add("done");
    announce("Copied.");
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.classList.remove("done");
    }, 1600);
  });
  return button;
}
