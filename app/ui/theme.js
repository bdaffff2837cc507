/** Light, dark, or the system's theme. The choice is stored. */
import { byId } from "./dom.js";
import { icon } from "./icons.js";

const ORDER = /** @type {const} */ (["auto", "light", "dark"]);
const NAMES = { auto: "as the system", light: "light", dark: "dark" };
const ICONS = { auto: "auto", light: "sun", dark: "moon" };

export function startTheme() {
  const button = byId("theme");
  const apply = (/** @type {(typeof ORDER)[number]} */ theme) => {
    if (theme === "auto") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = theme;
    const next = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    button.replaceChildren(icon(ICONS[theme]));
    button.title = `Colours: ${NAMES[theme]}`;
    button.ariaLabel = `Colours: ${NAMES[theme]}. Change to ${NAMES[next]}`;
    button.onclick = () => {
      localStorage.setItem("wisp.theme", next);
      apply(next);
    };
  };
  const stored = ORDER.find((theme) => theme === localStorage.getItem("wisp.theme"));
  apply(stored ?? "auto");
}
