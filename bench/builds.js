/**
 * Measures builds of Wisp on the same models by turns, in one page, so that both have the same GPU, browser and hour.
 *
 * @typedef {object} Asked
 * @property {Record<string, string>} builds addresses of copies of dist/, by name
 * @property {string[]} models addresses
 * @property {string[]} what of MEASURES
 * @property {number} rounds of each measurement, after a first one that is not counted
 * @property {number} tokens of each answer
 * @property {Record<string, Record<string, unknown>>} options of load(), by build
 *
 * @typedef {Record<string, { unit: string, values: Record<string, number[]> }>} Rows by measurement; values by build
 * @typedef {{ rows: Rows, texts: Record<string, Record<string, string>> }} Found `texts`: SHA-256 of answers by build
 */

const PROMPT = 128; // tokens of a request's prompt
const COUNTS = [1, 2, 4, 8]; // requests at once
const MANY = [16, 32]; // the same of "many"
const FIRST = [16, 64, 512]; // tokens of prompts whose first token is timed
const LONG = 8192;
const STREAMS = 4; // that run beside a long prompt
const SEEDS = 8;
const SAMPLED = { temperature: 0.8, top_p: 0.95 };
const CONCURRENT = 8; // requests whose steps or first tokens are timed
// An array of such objects without end: in random models, its mask changes most tokens.
const ITEM = {
  type: "object",
  additionalProperties: false,
  required: ["name", "kind", "tags"],
  properties: {
    name: { type: "string", maxLength: 40 },
    kind: { enum: ["alpha", "beta", "gamma"] },
    tags: { type: "array", items: { type: "string", maxLength: 12 }, minItems: 2, maxItems: 4 },
  },
};

/** @param {number} n @param {number} seed @returns {number[]} pseudo-random token ids, the same for each build */
function ids(n, seed) {
  let state = seed;
  return Array.from({ length: n }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return 1 + ((state >>> 8) % 250);
  });
}

/**
 * One streamed answer: its text, milliseconds until the first chunk, and when each chunk came, with its characters.
 * @param {any} engine @param {number[]} prompt @param {number} tokens @param {object} [more]
 */
async function answer(engine, prompt, tokens, more) {
  const begun = performance.now();
  const stream = await engine.completions.create({
    ...{ prompt, max_tokens: tokens, temperature: 0, ignore_eos: true, stream: true },
    ...more,
  });
  let first = 0, // until there is a text
    text = "",
    made = tokens;
  /** @type {[number, number][]} */
  const chunks = [];
  for await (const chunk of stream) {
    first ||= performance.now() - begun;
    const piece = chunk.choices[0]?.text ?? "";
    if (piece) chunks.push([performance.now(), piece.length]);
    text += piece;
    made = chunk.usage?.completion_tokens ?? made;
  }
  return { first, text, chunks, made };
}

/**
 * Milliseconds of a step of eight requests: from the last one's first text to the first one's last.
 * @param {any} engine @param {number} tokens @param {number} round
 */
async function stepOfEight(engine, tokens, round) {
  const answers = await Promise.all(
    Array.from({ length: CONCURRENT }, (_, i) =>
      answer(engine, ids(PROMPT, 100 + i), tokens, { ...SAMPLED, seed: 32 * round + i }),
    ),
  );
  const from = Math.max(...answers.map(({ chunks }) => chunks[0][0]));
  const to = Math.min(...answers.map(({ chunks }) => chunks[chunks.length - 1][0]));
  if (to <= from) throw new Error("A request ended before the last one began: raise --tokens.");
  const steps = answers.map(({ chunks, text }) => {
    const between = chunks.reduce((sum, [at, length]) => sum + (at > from && at <= to ? length : 0), 0);
    return (tokens * between) / text.length; // by its characters: a chunk does not say how many tokens it has
  });
  return (to - from) / steps.sort((a, b) => a - b)[CONCURRENT / 2];
}

/**
 * Tokens a second after the first text of one request, perhaps held to a schema.
 * @param {any} engine @param {number} tokens @param {number} round @param {object} [items] of the array that it is
 */
async function decoding(engine, tokens, round, items) {
  const schema = { type: "array", items, minItems: 1000 };
  const held = { ignore_eos: false, response_format: { type: "json_schema", json_schema: { name: "held", schema } } };
  const more = { temperature: 0.8, seed: round, stream_options: { include_usage: true }, ...(items && held) };
  const { chunks, made } = await answer(engine, ids(PROMPT, 77), tokens, more);
  return (1000 * (made - 1)) / (chunks[chunks.length - 1][0] - chunks[0][0]);
}

/**
 * Tokens a second in sum of some requests at once.
 * @param {any} engine @param {number} count @param {number} tokens @param {number} round @param {object} [more]
 */
async function rate(engine, count, tokens, round, more) {
  const begun = performance.now();
  await Promise.all(
    Array.from({ length: count }, (_, i) =>
      answer(engine, ids(PROMPT, 100 + i), tokens, more ?? { ...SAMPLED, seed: 32 * round + i }),
    ),
  );
  return (1000 * count * tokens) / (performance.now() - begun);
}

/** rate() of several counts. @param {any} engine @param {number[]} counts @param {number} tokens @param {number} round */
async function rates(engine, counts, tokens, round) {
  /** @type {[string, string, number][]} */
  const rows = [];
  for (const n of counts) rows.push([`${n} requests`, "tok/s", await rate(engine, n, tokens, round)]);
  return rows;
}

/** @type {Record<string, (engine: any, tokens: number, round: number) => Promise<[string, string, number][]>>} */
const MEASURES = {
  greedy: async (engine, tokens) => [["greedy", "tok/s", await rate(engine, 1, tokens, 0, {})]],
  requests: (engine, tokens, round) => rates(engine, COUNTS, tokens, round),
  many: (engine, tokens, round) => rates(engine, MANY, tokens, round),
  fresh: async (engine, tokens, round) => {
    const begun = performance.now();
    const answers = await Promise.all(
      Array.from({ length: CONCURRENT }, (_, i) =>
        answer(engine, ids(PROMPT, 1000 * round + 500 + i), tokens, { ...SAMPLED, seed: 32 * round + i }),
      ),
    );
    const all = (1000 * CONCURRENT * tokens) / (performance.now() - begun);
    const firsts = answers.map(({ first }) => first).sort((a, b) => a - b);
    return [
      ["8 requests, new prompts", "tok/s", all],
      ["the first one's first token", "ms", firsts[0]],
      ["the last one's first token", "ms", firsts[CONCURRENT - 1]],
    ];
  },
  steps: async (engine, tokens, round) => [["a step of 8 requests", "ms", await stepOfEight(engine, tokens, round)]],
  held: async (engine, tokens, round) => [
    ["no schema", "tok/s", await decoding(engine, tokens, round)],
    ["held to strings", "tok/s", await decoding(engine, tokens, round, { type: "string" })],
    ["held to objects", "tok/s", await decoding(engine, tokens, round, ITEM)],
  ],
  first: async (engine, _tokens, round) => {
    /** @type {[string, string, number][]} */
    const rows = [];
    for (const n of FIRST) {
      await answer(engine, ids(PROMPT, round + 7), 64); // clocks
      rows.push([`first token of ${n}`, "ms", (await answer(engine, ids(n, 1000 * round + n), 1)).first]);
    }
    return rows;
  },
  long: async (engine, tokens, round) => {
    const prompt = ids(LONG, round + 3);
    const { first } = await answer(engine, prompt, 1);
    const begun = performance.now();
    const { first: again } = await answer(engine, prompt, tokens);
    const decoding = performance.now() - begun - again;
    return [
      [`prompt of ${LONG}`, "tok/s", (1000 * LONG) / first],
      [`greedy at ${LONG}`, "tok/s", (1000 * (tokens - 1)) / decoding],
    ];
  },
  beside: async (engine, _tokens, round) => {
    const { first } = await answer(engine, ids(LONG, round + 17), 1);
    const { first: shared, gaps } = await beside(engine, round);
    return [
      [`first token of ${LONG}, alone`, "ms", first],
      [`first token of ${LONG}, beside ${STREAMS} streams`, "ms", shared],
      ["gaps of the streams, median", "ms", gaps[gaps.length >> 1]],
      ["the longest", "ms", gaps[gaps.length - 1]],
    ];
  },
};

/**
 * A long prompt beside streams: when its first token came, and the gaps between the streams' chunks until then.
 * @param {any} engine @param {number} round
 */
async function beside(engine, round) {
  const ended = new AbortController();
  let times = Array.from({ length: STREAMS }, () => /** @type {number[]} */ ([]));
  const streams = times.map(async (_, i) => {
    const request = { prompt: ids(PROMPT, 300 + i), max_tokens: LONG / 2, ignore_eos: true, stream: true };
    const stream = await engine.completions.create({ ...request, ...SAMPLED, seed: i }, { signal: ended.signal });
    for await (const _chunk of stream) times[i].push(performance.now());
  });
  while (times.some((chunks) => chunks.length < 8)) await new Promise((done) => setTimeout(done, 10));
  times = times.map((chunks) => chunks.splice(0) && chunks); // what comes from now on
  const { first } = await answer(engine, ids(LONG, round + 11), 1);
  const gaps = times.flatMap((chunks) => chunks.slice(1).map((time, i) => time - chunks[i])).sort((a, b) => a - b);
  ended.abort();
  await Promise.allSettled(streams);
  return { first, gaps };
}

/** SHA-256 of the answers of some seeds, alone and side by side. @param {any} engine @param {number} tokens */
async function texts(engine, tokens) {
  const one = (/** @type {number} */ seed) => answer(engine, ids(PROMPT, 50 + seed), tokens, { ...SAMPLED, seed });
  const alone = [];
  for (let seed = 0; seed < SEEDS; seed++) alone.push((await one(seed)).text);
  const beside = (await Promise.all(Array.from({ length: SEEDS }, (_, seed) => one(seed)))).map(({ text }) => text);
  /** @type {Record<string, string>} */
  const found = {};
  for (const [name, list] of Object.entries({ alone, beside })) {
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(JSON.stringify(list)));
    found[name] = Array.from(new Uint8Array(digest).slice(0, 8), (byte) => byte.toString(16).padStart(2, "0")).join("");
  }
  return found;
}

/** @param {Asked} asked @param {(model: string, found: Found) => void} onModel @returns {Promise<Record<string, Found>>} */
export async function measureBuilds(asked, onModel) {
  /** @type {Record<string, any>} */
  const engines = {};
  for (const [name, address] of Object.entries(asked.builds)) {
    const { Wisp } = await import(`${address}/wisp.js`);
    engines[name] = await Wisp.create({ shared: false });
  }
  /** @type {Record<string, Found>} */
  const all = {};
  for (const model of asked.models) {
    /** @type {Found} */
    const found = { rows: {}, texts: {} };
    const parallel = Math.max(...(asked.what.includes("many") ? MANY : COUNTS));
    for (const [name, engine] of Object.entries(engines)) {
      await engine.load({ model, parallel, speculation: false, ...asked.options[name] });
    }
    for (let round = 0; round <= asked.rounds; round++) {
      for (const what of asked.what.filter((name) => name in MEASURES)) {
        const order = Object.entries(engines);
        for (const [name, engine] of round % 2 ? order : order.reverse()) {
          await answer(engine, ids(PROMPT, 5), 64); // a GPU raises its clocks under load
          for (const [row, unit, value] of await MEASURES[what](engine, asked.tokens, round)) {
            if (!round) continue; // compiles kernels
            const { values } = (found.rows[row] ??= { unit, values: {} });
            (values[name] ??= []).push(value);
          }
        }
      }
    }
    for (const [name, engine] of Object.entries(engines)) {
      if (asked.what.includes("texts")) found.texts[name] = await texts(engine, asked.tokens);
      await engine.unload();
    }
    all[model] = found;
    onModel(model, found);
  }
  return all;
}
