import { t } from "../language/phrase.js";
import { icon } from "./icons.js";
import { announce } from "./notices.js";
import { iconButton } from "./dom.js";

/**
 * A button that copies a text and shows for a moment that it did.
 * @param {import("./texts.js").Text} label @param {() => string} text
 */
export function copyButton(label, text) {
  const button = iconButton("copy", label, async () => {
    try {
      await navigator.clipboard.writeText(text());
    } catch {
      return announce(t("The browser did not allow copying."));
    }
    button.replaceChildren(icon("check"));
    button.classList.add("done");
    announce(t("Copied."));
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.classList.remove("done");
    }, 1600);
  });
  button.dataset.changes = "nothing"; // of what is around it
  return button;
}
