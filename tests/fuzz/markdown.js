/** In a page: renders texts as the chat page does, streamed and whole, and checks what the page then has. */
import { Markdown } from "../../app/ui/markdown.js";
import { loadLanguage } from "../../app/ui/answer/highlight.js";
import { loadMath } from "../../app/ui/answer/math.js";
import { open } from "../support/answer_page.js";

const TAGS = new Set(
  "a b br button code del div em h1 h2 h3 h4 h5 h6 hr i li ol p pre s span strong sub sup svg use path table tbody td th thead tr ul blockquote".split(
    " ",
  ),
);

const MOST_MS = 10_000; // of a rendering: a text of 24 KB of the hardest formulas takes 2 s beside other work

/** Loads what formulas and code need, so that both renderings have it. */
export async function ready() {
  await open();
  await Promise.all([loadMath(), loadLanguage("every other")]);
}

/**
 * What is wrong with the rendering of a text, or null. `cuts`: lengths of the text at which it was shown while it grew.
 * @param {string} text @param {number[]} cuts
 */
export function check(text, cuts) {
  const began = performance.now();
  const [streamed, whole] = [document.createElement("div"), document.createElement("div")];
  document.querySelector("#cases")?.remove();
  const cases = Object.assign(document.createElement("div"), { id: "cases" });
  cases.append(streamed, whole);
  document.body.append(cases);
  const growing = new Markdown(streamed);
  for (const cut of cuts) growing.render(text.slice(0, cut), true);
  growing.render(text);
  new Markdown(whole).render(text);
  const took = (performance.now() - began) / (cuts.length + 2);
  if (took > MOST_MS) return `a rendering took ${took} ms`;
  if (streamed.innerHTML !== whole.innerHTML) return `streamed: ${streamed.innerHTML}\nwhole: ${whole.innerHTML}`;
  const unseen = /]:|```|~~~/.test(text); // Markdown shows neither a link's definition nor an empty code block's language
  if (/[a-z]/i.test(text) && !unseen && !whole.textContent?.trim()) return "nothing is shown";
  for (const element of whole.querySelectorAll("*")) {
    if (element.closest(".katex")) {
      if (element.matches("a, script, style, img, iframe")) return `<${element.localName}> in a formula`;
      continue;
    }
    if (!TAGS.has(element.localName)) return `<${element.localName}>`;
    const inIcon = element.closest("svg");
    for (const { name, value } of element.attributes) {
      if (name.startsWith("on") || name === "style" || name === "src") return `${name}="${value}"`;
      if (name === "href" && !inIcon && !/^(https?|mailto):/i.test(value)) return `href="${value}"`;
      if (name === "id" || name === "name") return `${name}="${value}"`;
    }
    if (inIcon && !element.closest("button")) return "an <svg> that the page did not make";
  }
  return null;
}
