/** Example prompts for the start page, of kinds that Wisp Mini answers well: it knows English. */
import { t } from "../language/phrase.js";
import { byId, h } from "./dom.js";

const EXAMPLES = [
  { label: t("Ask"), prompt: "What is WebGPU?" },
  { label: t("Write"), prompt: "Write a short story about a fox who finds a silver key." },
  { label: t("Compare"), prompt: "Make a table of France and Japan with the capital and the currency." },
  { label: t("Code"), prompt: "Write a Python function that reverses a string." },
  { label: t("Translate"), prompt: 'How do you say "hello" in Japanese, Korean and Russian?' },
  {
    label: t("Extract"),
    prompt: "Extract name, age and city as JSON: Maria is 31 years old, lives in Porto and works as a nurse.",
  },
];

/** @param {(prompt: string) => void} ask */
export function startExamples(ask) {
  const entries = EXAMPLES.map(({ label, prompt }) => {
    const texts = [h("strong", {}, label), h("span", { lang: "en", dir: "ltr" }, prompt)];
    return h("li", {}, h("button", { type: "button", on: { click: () => ask(prompt) } }, ...texts));
  });
  byId("examples").append(...entries);
}
