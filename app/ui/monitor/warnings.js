/** What a user should know about the figures of an engine. */
import { t } from "../../language/phrase.js";
import { bytes, percent, seconds } from "../format.js";

/** @typedef {import("../../sdk/monitor.js").Sample} Sample */

const MEMORY = 0.8; // of the budget, as WARN_AT of app/models/memory.py
const SLOWER = 2; // times the usual time of a token
const KNOWN = 3; // requests before something is usual
const HIT_RATE = 0.85;

/** @param {Sample[]} samples oldest first */
export function warningsOf(samples) {
  const now = samples.at(-1);
  if (!now) return [];
  const own = samples.filter(({ model }) => model === now.model);
  return [memory(now), latency(now, own), hits(now, own), waiting(now)].filter((text) => text !== null);
}

/** @param {Sample} now */
function memory({ used, budget }) {
  if (!budget || used < MEMORY * budget) return null;
  const figures = { percent: percent(used / budget), used: bytes(used), budget: bytes(budget) };
  return t(
    "Models take {percent} of the memory budget ({used} of {budget}). Unload one, or set a shorter context.",
    figures,
  );
}

/** @param {Sample} now @param {Sample[]} samples of the same model */
function latency(now, samples) {
  const times = new Map(samples.map(({ requests, token_ms }) => [requests, token_ms]));
  times.delete(now.requests);
  const known = [...times.values()].filter((ms) => ms !== null).sort((a, b) => a - b);
  if (known.length < KNOWN || now.token_ms === null) return null;
  const usual = known[known.length >> 1];
  if (now.token_ms < SLOWER * usual) return null;
  return t(
    "A token takes {time}, usually {usual}. A longer context, other requests and other programs make it slower.",
    { time: seconds(now.token_ms), usual: seconds(usual) },
  );
}

/** @param {Sample} now @param {Sample[]} samples of the same model */
function hits({ cache_hit_rate: rate }, samples) {
  const was = samples.some(({ cache_hit_rate: before }) => before !== null && before >= HIT_RATE);
  if (rate === null || rate >= HIT_RATE || !was) return null;
  return t(
    "Only {percent} of the prompts' tokens came from the cache. New chats and edited beginnings are computed anew.",
    { percent: percent(rate) },
  );
}

/** @param {Sample} now */
function waiting({ sequences }) {
  const count = sequences.filter(({ waits }) => waits).length;
  return count
    ? t("{n} of {all} requests wait for memory of the KV cache, and go on by themselves.", {
        n: count,
        all: sequences.length,
      })
    : null;
}
