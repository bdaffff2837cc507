import { Phrase } from "../language/phrase.js";
import { icon } from "./icons.js";
import { show, textNode } from "./texts.js";

/** @typedef {import("./texts.js").Text} Text */

const IDLE_MS = 200; // where a browser does not say when it is idle

/** Calls a function once the page is idle. @type {(then: () => void) => void} */
export const whenIdle = (then) =>
  "requestIdleCallback" in globalThis ? requestIdleCallback(() => then()) : setTimeout(then, IDLE_MS);

/**
 * Finds an element that index.html defines.
 * @template {HTMLElement} [T=HTMLElement]
 * @param {string} id @returns {T}
 */
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`index.html has no #${id}`);
  return /** @type {T} */ (element);
}

/**
 * Creates an element. Keys: `class`, `icon`, `on` ({event: handler}), `aria-*`, `data-*`, `role`; any other is a property.
 * Strings become text nodes, never HTML. Phrases follow the page's language.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, any>} [props]
 * @param {...(Node | Text | null | undefined | false)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (value === undefined || value === null) continue;
    if (key === "class") element.className = value;
    else if (key === "icon") element.prepend(icon(value));
    else if (key === "on")
      for (const [event, handler] of Object.entries(value)) element.addEventListener(event, handler);
    else if (value instanceof Phrase) show(element, key, value);
    else if (/^(aria-|data-|role$)/.test(key)) element.setAttribute(key, String(value));
    else Object.assign(element, { [key]: value });
  }
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Phrase ? textNode(child) : child);
  }
  return element;
}

/**
 * Creates a button with an icon only; `label` is its name and tooltip.
 * @param {string} name of the icon @param {Text} label @param {() => void} action @param {string} [className]
 */
export function iconButton(name, label, action, className = "icon-button") {
  return h("button", {
    type: "button",
    class: className,
    icon: name,
    title: label,
    "aria-label": label,
    on: { click: action },
  });
}

/** Adds the icons to all elements with `data-icon`. */
export function placeIcons(root = document) {
  for (const element of root.querySelectorAll("[data-icon]")) {
    element.prepend(icon(/** @type {HTMLElement} */ (element).dataset.icon ?? ""));
  }
}
