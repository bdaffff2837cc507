/**
 * Chooses which turns of a chat are sent, so that they fit the context: the oldest are left out, the last one never.
 *
 * Turns are dropped in blocks. Nothing is dropped until the prompt passes `most`; then so many are that a third of that is
 * free again. In between, each prompt begins as the one before it, so the KV cache has all of it but the new question.
 */

const PART = 1 / 4; // of the context, at most, that is reserved for the answer, and for passages of documents
const LEAST = 1 / 8; // of the context that an answer needs at least
const AFTER = 2 / 3; // of `most`, what a prompt has at most after turns were dropped
const CHARACTERS = 6; // for each token: most texts have fewer

/**
 * @typedef {object} Limits in tokens
 * @property {number} most that a prompt may have
 * @property {number} target that it has at most after turns were dropped
 * @property {number} last that a prompt may have that cannot be shortened any more
 * @property {number} characters of turns that are likely too many for a prompt
 *
 * @param {number} context @param {number | null} answer the limit of the answer's length @param {boolean} passages
 * @returns {Limits}
 */
export function limitsOf(context, answer, passages) {
  const part = Math.floor(context * PART);
  const most = context - Math.min(answer ?? part, part) - (passages ? part : 0);
  const last = context - Math.min(answer ?? context, Math.floor(context * LEAST));
  return { most, target: Math.floor(most * AFTER), last, characters: CHARACTERS * most };
}

/**
 * How many of the oldest turns to leave out.
 * @param {number} turns their number @param {number} before how many were left out in this chat's last request
 * @param {Pick<Limits, "most" | "target">} limits
 * @param {(dropped: number) => Promise<number>} count tokens of the prompt without so many turns
 * @param {number} [begin] what is counted first: without so many turns, the prompt is likely too long
 * @returns {Promise<number>}
 */
export async function turnsToDrop(turns, before, { most, target }, count, begin = before) {
  let over = Math.max(before, Math.min(begin, turns - 1)); // too many tokens without so many turns
  while ((await count(over)) <= most) {
    if (over === before) return before;
    over = Math.max(before, 2 * over - turns); // twice as many turns are sent
  }
  let fits = Math.max(before, turns - 1);
  // Search from the end: there the prompts are short, so counting them is quick.
  for (let step = 1, found = false; fits - over > 1; step *= 2) {
    /** @type {number} */
    const next = found ? (over + fits) >> 1 : Math.max(over + 1, fits - step);
    if ((await count(next)) <= target) fits = next;
    else [over, found] = [next, true];
  }
  return fits;
}

/**
 * The longest end of a text with which the prompt has at most `target` tokens.
 * @param {string} text @param {number} target @param {(text: string) => Promise<number>} count @returns {Promise<string>}
 */
export async function fittingEnd(text, target, count) {
  let over = 0;
  let fits = text.length;
  while (fits - over > 8) {
    const next = (over + fits) >> 1;
    if ((await count(text.slice(next))) <= target) fits = next;
    else over = next;
  }
  return text.slice(fits);
}
