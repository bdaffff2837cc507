/**
 * How good a model is, as llama.cpp's llama-perplexity defines it: the perplexity of a text, the divergence of one model
 * from another, and multiple-choice questions. Every figure comes from `evaluate()`.
 */
import { WispError } from "./error.js";

/**
 * @typedef {import("./figures.d.ts").QualityOptions} QualityOptions
 * @typedef {import("./figures.d.ts").Perplexity} Perplexity
 * @typedef {import("./figures.d.ts").Divergence} Divergence
 * @typedef {import("./figures.d.ts").Question} Question
 * @typedef {import("./figures.d.ts").Score} Score
 * @typedef {import("./figures.d.ts").QualityFigures} QualityFigures
 *
 * @typedef {Pick<import("../wisp.js").Wisp, "tokenize" | "evaluate" | "stats">} Model what evaluates
 * @typedef {{ logits: Float32Array, shape: [number, number] }} Logits
 */

const CHUNK = 512; // tokens, llama-perplexity's default
const SLICE = 8; // ms of sums over vocabularies at a time: the page draws and listens between them

/** @implements {QualityFigures} */
export class Quality {
  #engine;

  /** @param {Model} engine */
  constructor(engine) {
    this.#engine = engine;
  }

  /**
   * The perplexity of a text: it is cut into chunks, and the second half of each is scored, given what comes before.
   * @param {string} text @param {QualityOptions} [options] @returns {Promise<Perplexity>}
   */
  async perplexity(text, { model, ...options } = {}) {
    const mean = new Mean();
    const chunks = await this.#each(text, [model], options, ([logits], next) =>
      mean.add(-logProbability(logits, next)),
    );
    return perplexityOf(mean, chunks);
  }

  /**
   * How far a model's probabilities are from those of another one, such as an unquantized one, with the same vocabulary.
   * @param {string} text @param {QualityOptions & { base: string }} options `base`: the model to compare with, loaded
   * @returns {Promise<Divergence>}
   */
  async divergence(text, { base, model, ...options }) {
    const [divergences, bases, models] = [new Mean(), new Mean(), new Mean()];
    let max = 0;
    let same = 0;
    const chunks = await this.#each(text, [base, model], options, ([a, b], next) => {
      if (a.length !== b.length) throw invalid("The models have different vocabularies.", "base");
      const kl = divergence(a, b);
      divergences.add(kl);
      max = Math.max(max, kl);
      same += top(a) === top(b) ? 1 : 0;
      bases.add(-logProbability(a, next));
      models.add(-logProbability(b, next));
    });
    const tokens = divergences.count;
    const both = { base: perplexityOf(bases, chunks), model: perplexityOf(models, chunks) };
    return { mean: divergences.mean, max, same_top: same / tokens, ...both, tokens };
  }

  /**
   * Answers questions with the choice whose tokens are the most probable ones on average, after "QUESTION CHOICE".
   * @param {Question[] | string} questions as objects, or as JSON lines @param {QualityOptions} [options]
   * @returns {Promise<Score>}
   */
  async multipleChoice(questions, { model, onProgress = () => {}, signal } = {}) {
    const all = questionsOf(questions);
    const chosen = [];
    for (const { question, choices } of all) {
      signal?.throwIfAborted();
      const scores = await this.#scores(question, choices, model);
      chosen.push(scores.indexOf(Math.max(...scores)));
      onProgress(chosen.length, all.length);
    }
    const correct = chosen.filter((choice, i) => choice === all[i].answer).length;
    return { correct, total: all.length, accuracy: correct / all.length, chosen };
  }

  /** The mean log-probability of each choice's tokens. @param {string} question @param {string[]} choices @param {string | undefined} model */
  async #scores(question, choices, model) {
    const texts = choices.map((choice) => this.#engine.tokenize(`${question} ${choice}`, { addSpecial: true, model }));
    const sequences = await Promise.all(texts);
    let common = 0;
    while (sequences.every((ids) => common < ids.length && ids[common] === sequences[0][common])) common++;
    common = Math.max(1, Math.min(common, ...sequences.map((ids) => ids.length - 1)));
    const scores = [];
    for (const ids of sequences) {
      const { logits, shape } = await this.#logits(ids, model);
      const mean = new Mean();
      for (let i = common - 1; i < ids.length - 1; i++) mean.add(logProbability(row(logits, shape, i), ids[i + 1]));
      scores.push(mean.mean);
    }
    return scores;
  }

  /**
   * Evaluates a text chunk by chunk with each model. Returns the number of chunks.
   * @param {string} text @param {(string | undefined)[]} models @param {QualityOptions} options
   * @param {(rows: Float32Array[], next: number) => void} score one position: each model's logits, and the token after it
   */
  async #each(text, models, { contextLength = CHUNK, onProgress = () => {}, signal }, score) {
    const [model] = models;
    const most = (await this.#engine.stats({ model })).context_length ?? 0;
    if (!Number.isInteger(contextLength) || contextLength < 4 || contextLength > most)
      throw invalid(`contextLength must be a whole number from 4 to ${most}.`, "contextLength");
    const ids = await this.#engine.tokenize(text, { addSpecial: true, model });
    if (ids.length < 2 * contextLength) {
      const least = `${2 * contextLength} are needed for chunks of ${contextLength}`;
      throw invalid(
        `The text has ${ids.length} tokens; ${least}. Give a longer text, or a smaller contextLength.`,
        "text",
      );
    }
    const [bos] = await this.#engine.tokenize("", { addSpecial: true, model });
    const total = Math.floor(ids.length / contextLength);
    let begun = performance.now();
    for (let chunk = 0; chunk < total; chunk++) {
      signal?.throwIfAborted();
      const part = ids.slice(chunk * contextLength, (chunk + 1) * contextLength);
      const fed = bos === undefined ? part : [bos, ...part.slice(1)];
      const logits = [];
      for (const one of models) logits.push(await this.#logits(fed, one));
      for (let i = contextLength >> 1; i < part.length - 1; i++) {
        const rows = logits.map(({ logits, shape }) => row(logits, shape, i));
        score(rows, part[i + 1]);
        if (performance.now() - begun > SLICE) begun = await pause();
      }
      onProgress(chunk + 1, total);
    }
    return total;
  }

  /** @param {number[]} ids @param {string | undefined} model @returns {Promise<Logits>} */
  async #logits(ids, model) {
    const found = await this.#engine.evaluate(ids, { model });
    if (!("logits" in found)) throw invalid("An embedding model has no quality of this kind.", "model");
    if (found.shape[0] !== ids.length)
      throw invalid("An encoder-decoder model gives a text's tokens no probabilities.", "model");
    return found;
  }
}

/** The mean of values, and what its error is made of. */
class Mean {
  count = 0;
  #sum = 0;
  #squares = 0;

  /** @param {number} value */
  add(value) {
    this.count++;
    this.#sum += value;
    this.#squares += value * value;
  }

  get mean() {
    return this.#sum / this.count;
  }

  /** The standard error of the mean. */
  get error() {
    const variance = this.#squares / this.count - this.mean ** 2;
    return variance > 0 && this.count > 1 ? Math.sqrt(variance / (this.count - 1)) : 0;
  }
}

/** @param {Mean} mean of the negative log-probabilities @param {number} chunks @returns {Perplexity} */
function perplexityOf(mean, chunks) {
  const perplexity = Math.exp(mean.mean);
  return { perplexity, error: mean.error * perplexity, tokens: mean.count, chunks };
}

/** @param {Float32Array} logits @param {[number, number]} shape @param {number} i */
const row = (logits, [, width], i) => logits.subarray(i * width, (i + 1) * width);

/** Lets the page do what waits, also in a hidden tab, whose timers are slow. Returns the time. @returns {Promise<number>} */
function pause() {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => {
      port1.close();
      resolve(performance.now());
    };
    port2.postMessage(null);
  });
}

/** log Σ exp(logits). @param {Float32Array} logits */
function logSum(logits) {
  const most = logits[top(logits)];
  let sum = 0;
  for (const value of logits) sum += Math.exp(value - most);
  return most + Math.log(sum);
}

/** @param {Float32Array} logits @param {number} id */
const logProbability = (logits, id) => logits[id] - logSum(logits);

/** @param {Float32Array} logits */
function top(logits) {
  let best = 0;
  for (let i = 1; i < logits.length; i++) if (logits[i] > logits[best]) best = i;
  return best;
}

/** KL divergence of `other` from `base`. @param {Float32Array} base @param {Float32Array} other */
function divergence(base, other) {
  const [a, b] = [logSum(base), logSum(other)];
  let sum = 0;
  for (let i = 0; i < base.length; i++) {
    const logP = base[i] - a;
    sum += Math.exp(logP) * (logP - (other[i] - b));
  }
  return sum;
}

/** @param {Question[] | string} questions @returns {Question[]} */
function questionsOf(questions) {
  const lines = typeof questions === "string" ? questions.split("\n").filter((line) => line.trim()) : null;
  const all = lines ? lines.map(parsed) : questions;
  if (!Array.isArray(all) || !all.length) throw invalid("There are no questions.", "questions");
  all.forEach(({ question, choices, answer } = /** @type {any} */ ({}), i) => {
    const texts =
      Array.isArray(choices) && choices.length > 1 && choices.every((choice) => typeof choice === "string" && choice);
    if (
      typeof question !== "string" ||
      !texts ||
      !Number.isInteger(answer) ||
      !(answer >= 0 && answer < choices.length)
    )
      throw invalid(
        `Question ${i + 1} is not {"question", "choices": [two or more texts], "answer": index}.`,
        "questions",
      );
  });
  return /** @type {Question[]} */ (all);
}

/** @param {string} line @param {number} i */
function parsed(line, i) {
  try {
    return JSON.parse(line);
  } catch {
    throw invalid(`Line ${i + 1} of the questions is not JSON.`, "questions");
  }
}

/** @param {string} message @param {string} param */
function invalid(message, param) {
  return new WispError({ message, type: "invalid_request_error", param, code: "invalid_value" });
}
