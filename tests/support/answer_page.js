/** In a page: the parts of an answer, without an engine. */
export { Markdown } from "../../app/ui/markdown.js";
export { AnswerView, showWholeAnswers } from "../../app/ui/answer/answer_view.js";
export { CallCard } from "../../app/ui/answer/call_card.js";
export { csvOf } from "../../app/ui/answer/table.js";
export { loadLanguage } from "../../app/ui/answer/highlight.js";
export { loadMath, textWithTex } from "../../app/ui/answer/math.js";
export { notify } from "../../app/ui/notices.js";

/** Gives the page the style and the lazily loaded parts of the chat page. */
export async function open() {
  const text = await (await fetch("/index.html")).text();
  const page = new DOMParser().parseFromString(text, "text/html");
  const parts = /** @type {HTMLElement} */ (page.querySelector("#parts"));
  for (const [name, paths] of Object.entries(parts.dataset))
    parts.dataset[name] = paths
      .split(" ")
      .map((path) => `/${path}`)
      .join(" ");
  const style = document.createElement("link");
  const loaded = new Promise((resolve) => (style.onload = resolve));
  Object.assign(style, {
    rel: "stylesheet",
    href: `/${page.querySelector("link[rel=stylesheet]").getAttribute("href")}`,
  });
  document.head.append(style);
  const [live, notices] = ["live", "notices"].map((id) => Object.assign(document.createElement("div"), { id }));
  document.body.append(parts, live, notices);
  await loaded;
}
