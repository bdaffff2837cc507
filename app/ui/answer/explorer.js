/**
 * The token explorer: an answer's words coloured by probability. Hovering or focusing one shows what the model might have
 * written instead; choosing that lets the answer go on from there.
 */
import { joined, t } from "../../language/phrase.js";
import { h } from "../dom.js";
import { percent as percentOf } from "../format.js";
import { isKey, keyOf } from "../shortcuts.js";
import { show as put } from "../texts.js";

/**
 * @typedef {import("./words.js").Word} Word
 * @typedef {(index: number, id: number) => void} Choose
 */

const END = t("end of the answer");

/** @param {number} probability */
const percent = (probability) =>
  probability < 0.001 ? joined(["<", percentOf(0.001, 1)], "") : percentOf(probability, probability < 0.1 ? 1 : 0);

/** A text on one line, with spaces that can be seen. @param {string} text */
const visible = (text) => text.replaceAll("\n", "↵").replaceAll("\t", "⇥") || END;

/** @param {number} probability */
const level = (probability) =>
  probability >= 0.9 ? "sure" : probability >= 0.5 ? "likely" : probability >= 0.15 ? "open" : "rare";

/** @param {Word[]} words @param {Choose | null} choose null: no branches now @returns {HTMLElement} */
export function explorer(words, choose) {
  const panel = h("div", { class: "word-panel", role: "group", hidden: true });
  const spans = words.map((word, i) => {
    const label = joined([visible(word.text), percent(word.probability)], ", ");
    const props = {
      class: `word ${level(word.probability)}`,
      tabIndex: i ? -1 : 0,
      role: "button",
      "aria-label": label,
    };
    return h("span", { ...props, "data-word": i }, word.text.includes("\n") ? `↵${word.text}` : word.text);
  });
  const text = h(
    "div",
    { class: "words", role: "group", "aria-label": t("Words and their probabilities"), dir: "auto" },
    ...spans,
  );
  const root = h("div", { class: "explorer" }, text, panel);
  let current = -1;

  const show = (/** @type {number} */ index) => {
    if (index === current) return;
    current = index;
    panel.hidden = index < 0;
    if (index < 0) return;
    const word = words[index];
    put(panel, "aria-label", t("Instead of {word}", { word: visible(word.text) }));
    panel.replaceChildren(...choicesOf(word).map((choice) => row(choice, choice.id === word.id, index)));
    const { offsetLeft, offsetTop, offsetHeight } = spans[index];
    panel.style.top = `${offsetTop + offsetHeight}px`;
    panel.style.left = `${Math.max(0, Math.min(offsetLeft, root.clientWidth - panel.offsetWidth))}px`;
  };
  const row = (
    /** @type {import("./words.js").Choice} */ choice,
    /** @type {boolean} */ taken,
    /** @type {number} */ index,
  ) => {
    const content = [
      h("span", { class: "word-text" }, visible(choice.text)),
      h("span", {}, percent(choice.probability)),
    ];
    const click = () => choose?.(index, choice.id);
    const title = taken ? t("The answer's word") : t("Go on from here with this word");
    return h(
      "button",
      { type: "button", class: "word-choice", disabled: taken || !choose, title, on: { click } },
      ...content,
    );
  };
  const move = (/** @type {number} */ index) => {
    if (!spans[index]) return;
    for (const span of spans) if (span.tabIndex === 0) span.tabIndex = -1;
    spans[index].tabIndex = 0;
    spans[index].focus();
  };

  const rightwards = () => (getComputedStyle(text).direction === "rtl" ? -1 : 1);
  const wordAt = (/** @type {EventTarget | null} */ target) =>
    Number((target instanceof Element ? target.closest(".word") : null)?.getAttribute("data-word") ?? -1);
  text.addEventListener("pointerover", ({ target }) => wordAt(target) >= 0 && show(wordAt(target)));
  text.addEventListener("focusin", ({ target }) => show(wordAt(target)));
  text.addEventListener("click", ({ target }) => wordAt(target) >= 0 && move(wordAt(target)));
  root.addEventListener("pointerleave", () => !root.contains(document.activeElement) && show(-1));
  root.addEventListener(
    "focusout",
    ({ relatedTarget }) => !root.contains(/** @type {Node} */ (relatedTarget)) && show(-1),
  );
  root.addEventListener("keydown", (event) => {
    const buttons = [...panel.querySelectorAll("button:enabled")];
    const at = buttons.indexOf(/** @type {Element} */ (event.target));
    const to = (/** @type {Element | undefined} */ element) =>
      /** @type {HTMLElement | undefined} */ (element)?.focus();
    const step = [1, -1][keyOf("step", event)];
    const right = [1, -1][keyOf("word", event)];
    if (isKey("close", event) && at >= 0) move(current);
    else if (isKey("close", event) && current >= 0) show(-1);
    else if (step === -1 && at === 0) move(current);
    else if (step && (step === 1 || at > 0)) to(buttons[at + step]);
    else if (right && at < 0) move(wordAt(event.target) + right * rightwards());
    else if (isKey("choose", event) && at < 0) to(buttons[0]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return root;
}

/** The alternatives of a word, with itself, the likeliest first. @param {Word} word */
function choicesOf(word) {
  const all = word.choices.some(({ id }) => id === word.id) ? word.choices : [...word.choices, word];
  return [...all].sort((a, b) => b.probability - a.probability);
}
