/** The passage of a chat that a search found. */
import { h } from "../../dom.js";

const BEFORE = 24; // characters
const LENGTH = 140;

/** Finds the first word that begins as one of the query's; null: the query has no words. @param {string} query */
export function patternOf(query) {
  const words = query.match(/[\p{L}\p{N}]+/gu);
  return words && new RegExp(`(?<![\\p{L}\\p{N}])(?:${words.join("|")})[\\p{L}\\p{N}]*`, "iu");
}

/**
 * The surroundings of the first word that begins as one of the query's, which is marked.
 * @param {{ content: string }[]} messages @param {string} query @returns {(Node | string)[]}
 */
export function excerptOf(messages, query) {
  const pattern = patternOf(query);
  for (const { content } of pattern ? messages : []) {
    const found = pattern?.exec(content);
    if (!found) continue;
    const { index: at, 0: hit } = found;
    const from = Math.max(0, at - BEFORE);
    return [
      (from ? "…" : "") + content.slice(from, at),
      h("mark", {}, hit),
      content.slice(at + hit.length, from + LENGTH),
    ];
  }
  return [];
}
