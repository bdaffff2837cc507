/** The words of an answer with their probabilities, and branches from one of them. "Words" are the model's tokens. */

/**
 * @typedef {object} Words what chunks say of an answer's words
 * @property {number[]} shown token ids, in order; control tokens that are not part of the text are left out
 * @property {Record<number, string>} texts of these and of the alternatives
 *
 * @typedef {object} Trace what it takes to branch
 * @property {Record<string, any>} request
 * @property {string} [begun] the answer's text before that request
 * @property {import("../../sdk/journal.js").Journal} journal with [id, log-probability, alternatives] of each token
 *
 * @typedef {{ id: number, text: string, probability: number }} Choice
 * @typedef {Choice & { choices: Choice[] }} Word `choices`: the most probable ones, which may lack the word itself
 */

const KEY = "wisp.words";
const ALTERNATIVES = 6;

const exploring = () => localStorage.getItem(KEY) === "on";

/** Connects the switch of the mode. @param {HTMLInputElement} checkbox */
export function startWords(checkbox) {
  checkbox.checked = exploring();
  checkbox.onchange = () => localStorage.setItem(KEY, checkbox.checked ? "on" : "off");
}

/** What a request asks for while the mode is on. */
export const wordFields = () => (exploring() ? { logprobs: true, top_logprobs: ALTERNATIVES } : {});

/**
 * Adds what a chunk says of words.
 * @param {Words | undefined} words @param {any[]} entries of its log-probabilities @returns {Words | undefined}
 */
export function withWords(words, entries) {
  if (entries.some(({ id }) => id === undefined)) return words; // another server's
  const { shown, texts } = words ?? { shown: [], texts: {} };
  for (const { id, token, top_logprobs: top } of entries) {
    shown.push(id);
    for (const one of [{ id, token }, ...top]) texts[one.id] = one.token;
  }
  return { shown, texts };
}

/** The tokens of a journal's first choice. @param {Trace["journal"]} journal */
const tokensOf = ({ choices }) => choices[0]?.batches.flat() ?? [];

/** Where in its journal each word of an answer is. @param {Words} words @param {any[]} tokens */
function places({ shown }, tokens) {
  let at = -1;
  return shown.map((id) => {
    do at++;
    while (at < tokens.length && tokens[at][0] !== id);
    return at;
  });
}

/** @param {Words} words @param {Trace} trace @returns {Word[]} */
export function wordsOf(words, { journal }) {
  const tokens = tokensOf(journal);
  const choice = (/** @type {number} */ id, /** @type {number} */ logprob) => ({
    id,
    text: words.texts[id] ?? "",
    probability: Math.exp(logprob),
  });
  return places(words, tokens)
    .filter((at) => at < tokens.length)
    .map((at) => {
      const [id, logprob, top] = tokens[at];
      return { ...choice(id, logprob), choices: top.map((/** @type {[number, number]} */ one) => choice(...one)) };
    });
}

/**
 * What continues an answer from a word on with another one: the same request, and a journal that ends there.
 * @param {Words} words @param {Trace} trace @param {number} index of the word @param {number} id of the other one
 * @returns {{ request: Record<string, any>, journal: any, begun?: string, content: string }} `content`: the text so far
 */
export function branchOf(words, { request, journal, begun }, index, id) {
  const tokens = tokensOf(journal);
  const at = places(words, tokens)[index];
  const top = tokens[at][2];
  const logprob = top.find((/** @type {[number, number]} */ [other]) => other === id)?.[1] ?? tokens[at][1];
  const batches = [[...tokens.slice(0, at), [id, logprob, top]]];
  const { answer, choices } = journal;
  const content = [begun ?? "", ...[...words.shown.slice(0, index), id].map((one) => words.texts[one] ?? "")].join("");
  const choice = { seed: choices[0]?.seed, batches, closed: false };
  return { request, journal: { answer, choices: [choice], over: false, branched: true }, begun, content };
}
