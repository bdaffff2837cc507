/**
 * What the worker has told about one answer: enough for another worker to continue it (app/answers/journal.py). JSON, so
 * a page may store it.
 *
 * @typedef {{ seed?: number | null, batches: any[][], closed?: boolean }} Recorded one choice: its tokens, batch by batch
 * @typedef {{ answer: { root: string, created: number }, choices: (Recorded | null)[], over?: boolean,
 *   branched?: boolean }} Journal `branched`: the page has chosen the last token
 *
 * @typedef {object} Entry
 * @property {Journal["answer"]} [answer]
 * @property {number} [choice] the others are about it
 * @property {number | null} [seed]
 * @property {any[][]} [batches] its next tokens
 * @property {boolean} [closed] it is complete
 * @property {boolean} [over] all choices are, and all chunks were sent
 */

/** Adds entries to a journal. @param {Journal | null} journal @param {Entry[]} entries @returns {Journal} */
export function record(journal, entries) {
  const found = journal ?? { answer: { root: "", created: 0 }, choices: [] };
  for (const { answer, choice, seed, batches, closed, over } of entries) {
    if (answer) found.answer = answer;
    if (over) found.over = true;
    if (choice === undefined) continue;
    while (found.choices.length <= choice) found.choices.push(null);
    const recorded = (found.choices[choice] ??= { batches: [] });
    if (seed !== undefined) recorded.seed = seed;
    if (batches) recorded.batches.push(...batches);
    if (closed) recorded.closed = true;
  }
  return found;
}
