/** The passage of a chat that a search found. */
import { h } from "../../dom.js";

const BEFORE = 24; // characters
const LENGTH = 140;

/**
 * The surroundings of the first word that begins as one of the query's, which is marked.
 * @param {{ content: string }[]} messages @param {string} query @returns {(Node | string)[]}
 */
export function excerptOf(messages, query) {
  const words = query.match(/[\p{L}\p{N}]+/gu) ?? [];
  const pattern = new RegExp(`(?<![\\p{L}\\p{N}])(?:${words.join("|")})`, "iu");
  for (const { content } of words.length ? messages : []) {
    const at = content.search(pattern);
    if (at < 0) continue;
    const from = Math.max(0, at - BEFORE);
    const [hit] = /** @type {RegExpMatchArray} */ (content.slice(at).match(/^[\p{L}\p{N}]+/u));
    return [
      (from ? "…" : "") + content.slice(from, at),
      h("mark", {}, hit),
      content.slice(at + hit.length, from + LENGTH),
    ];
  }
  return [];
}
