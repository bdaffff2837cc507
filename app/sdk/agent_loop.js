/**
 * The loop of an agent: ask the model, run the calls of its answer, ask again, until it answers without calls or a budget
 * ends it. `engine.agents` and the page's chats share it; they differ in how they ask and in where results go.
 */

/**
 * @template Call
 * @typedef {object} Turn one answer of the model
 * @property {Call[]} calls that it made
 * @property {number} tokens that it took
 * @property {boolean} cut it ended at the limit of its length: its calls may not be whole
 */

/** @typedef {"answer" | "turns" | "tokens"} Ended */

/**
 * Runs turns until one ends it. The last turn that the budget allows is asked for an answer without calls.
 * @template Call
 * @param {object} how
 * @param {(turn: { turn: number, last: boolean, left: number | undefined }) => Promise<Turn<Call>>} how.ask `left`: tokens
 * @param {(calls: Call[]) => Promise<unknown>} how.run all calls of a turn
 * @param {number} how.maxTurns @param {number} [how.maxTokens] of all turns together
 * @param {number} [how.turns] before this @param {number} [how.tokens] before this
 * @param {AbortSignal | null} [how.signal]
 * @returns {Promise<{ turns: number, ended: Ended, notRun: Call[] }>}
 */
export async function agentLoop({ ask, run, maxTurns, maxTokens, turns = 0, tokens = 0, signal }) {
  for (let turn = turns + 1, spent = tokens; ; turn++) {
    signal?.throwIfAborted();
    const last = turn >= maxTurns;
    const left = maxTokens === undefined ? undefined : Math.max(1, maxTokens - spent);
    const { calls, tokens, cut } = await ask({ turn, last, left });
    spent += tokens;
    const out = cut || (maxTokens !== undefined && spent >= maxTokens);
    if (!calls.length || out || last)
      return { turns: turn, ended: out ? "tokens" : last ? "turns" : "answer", notRun: calls };
    await run(calls);
  }
}

/** What the model is told of a call's result. @param {unknown} value text, or JSON */
export const toldOf = (value) => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

/** What the model is told of an error. @param {any} error */
export const toldOfError = (error) => JSON.stringify({ error: `${error?.message ?? error}` });

/** The arguments of a call. Throws where they are not JSON of an object. @param {string} text @returns {Record<string, any>} */
export function argumentsOf(text) {
  const given = JSON.parse(text || "{}");
  if (typeof given !== "object" || given === null || Array.isArray(given))
    throw new Error("The arguments are not a JSON object.");
  return given;
}
