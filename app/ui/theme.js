/** Light, dark, or the system's theme. The choice is stored. */
import { t } from "../language/phrase.js";
import { byId } from "./dom.js";
import { icon } from "./icons.js";
import { show } from "./texts.js";

const ORDER = /** @type {const} */ (["auto", "light", "dark"]);
const NAMES = { auto: t("as the system"), light: t("light"), dark: t("dark") };
const ICONS = { auto: "auto", light: "sun", dark: "moon" };

export function startTheme() {
  const button = byId("theme");
  const apply = (/** @type {(typeof ORDER)[number]} */ theme) => {
    if (theme === "auto") document.documentElement.removeAttribute("data-theme");
    else document.documentElement.dataset.theme = theme;
    const next = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    button.replaceChildren(icon(ICONS[theme]));
    show(button, "title", t("Colours: {theme}", { theme: NAMES[theme] }));
    show(button, "aria-label", t("Colours: {theme}. Change to {next}", { theme: NAMES[theme], next: NAMES[next] }));
    button.onclick = () => {
      localStorage.setItem("wisp.theme", next);
      apply(next);
    };
  };
  const stored = ORDER.find((theme) => theme === localStorage.getItem("wisp.theme"));
  apply(stored ?? "auto");
}
