/** A menu beside a button, by keyboard and by pointer. */
import { byId, h } from "../dom.js";
import { isKey, keyOf } from "../shortcuts.js";

/**
 * @param {HTMLElement} button @param {{ label: import("../texts.js").Text, icon: string, run: () => void }[]} entries
 */
export function openMenu(button, entries) {
  const menu = byId("menu");
  menu.replaceChildren(
    ...entries.map(({ label, icon, run }) => {
      const click = () => {
        menu.hidePopover();
        run();
      };
      return h("button", { type: "button", role: "menuitem", class: "menu-entry", icon, on: { click } }, label);
    }),
  );
  menu.onkeydown = (event) => {
    const items = [...menu.querySelectorAll("button")];
    const at = items.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    const to = [at + 1, at - 1][keyOf("step", event)] ?? [0, -1][keyOf("ends", event)];
    if (isKey("close", event) || event.key === "Tab") {
      menu.hidePopover();
      button.focus();
    } else if (to !== undefined) items.at(to % items.length)?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  menu.showPopover();
  const beside = button.getBoundingClientRect();
  const { width, height } = menu.getBoundingClientRect();
  const left = getComputedStyle(button).direction === "rtl" ? beside.right - width : beside.left;
  menu.style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
  menu.style.top = `${beside.bottom + height > innerHeight ? Math.max(8, beside.top - height) : beside.bottom}px`;
  menu.querySelector("button")?.focus();
}
