/** Makes a chat of another program's messages: theirs name their parents by ids, and some are not shown. */
import { t } from "../../../language/phrase.js";

const REPEATED = 1e7; // limit on the characters that branches repeat; thousands of branches of a long answer would repeat billions

/**
 * @typedef {import("../database.js").ChatInfo} ChatInfo
 * @typedef {import("../database.js").Message} Message
 * @typedef {{ info: ChatInfo, messages: Message[] }} Stored
 *
 * @typedef {object} Node
 * @property {string} id
 * @property {string | null} parent
 * @property {"user" | "assistant" | null} role null: the message is left out, those after it are not
 * @property {string} content
 * @property {string} [reasoning]
 * @property {string} [model]
 */

/**
 * @param {{ id: string, title: string, created: number, updated: number, system?: string }} about times in seconds
 * @param {Node[]} nodes in any order @param {string | null | undefined} current the last one of the shown branch
 * @returns {Stored}
 */
export function chatOf({ id, title, created, updated, system }, nodes, current) {
  const known = new Set(nodes.map(({ id }) => id));
  /** @type {Map<string | null, Node[]>} */
  const after = new Map();
  for (const node of nodes) {
    const parent = node.parent !== null && known.has(node.parent) ? node.parent : null;
    after
      .set(parent, after.get(parent) ?? [])
      .get(parent)
      ?.push(node);
  }
  /** @type {Message[]} */
  const messages = [];
  /** @type {Map<string, Message | null>} node -> the message that shows it, or the one before it */
  const shownBy = new Map();
  /** @type {Map<string | null, string>} node -> the answer up to it, which versions of the answer's next part share */
  const begun = new Map();
  let repeated = 0;
  /** @type {{ node: Node, before: Message | null, thought: string }[]} */
  const waiting = (after.get(null) ?? []).toReversed().map((node) => ({ node, before: null, thought: "" }));
  for (;;) {
    const next = waiting.pop();
    if (!next) break;
    const { node, before, thought } = next;
    const { role, content, model } = node;
    const reasoning = joined(thought, node.reasoning);
    let last = before;
    if (role && content) {
      const shared = begun.get(node.parent);
      const continues = role === "assistant" && before?.role === "assistant";
      const part = continues && (shared === undefined || mayRepeat(shared)) ? before : null;
      if (part && shared === undefined) {
        begun.set(node.parent, part.content);
        part.content += `\n\n${content}`;
      } else if (part) {
        last = add({ ...part, content: `${shared}\n\n${content}` }, part.parent);
      } else {
        const answer = role === "assistant" ? { finish: /** @type {const} */ ("stop"), ...(model && { model }) } : {};
        last = add({ role, content, ...answer, ...(reasoning && { reasoning }) }, before?.n ?? null);
      }
    }
    shownBy.set(node.id, last);
    const rest = last === before && !content ? reasoning : "";
    const branches = (after.get(node.id) ?? []).filter(({ id }) => !shownBy.has(id));
    const thoughts = branches.map((_, index) => (index && !mayRepeat(rest) ? "" : rest));
    for (const next of branches.toReversed()) waiting.push({ node: next, before: last, thought: thoughts.pop() ?? "" });
  }
  const shown = current ? shownBy.get(current) : null;
  const info = {
    id,
    title,
    created: timeOf(created),
    updated: timeOf(updated || created),
    shown: shown?.n ?? messages.at(-1)?.n ?? null,
    ...(system && { settings: { system } }),
  };
  return { info, messages };

  /** Whether another branch may have the same text. Counts it. @param {string} [text] */
  function mayRepeat(text = "") {
    repeated += text.length;
    return repeated <= REPEATED;
  }

  /** @param {import("../database.js").Draft} draft @param {number | null} parent */
  function add(draft, parent) {
    const made = { ...draft, n: messages.length, parent };
    messages.push(made);
    return made;
  }
}

/**
 * Joins two texts, which may be empty. join() would copy both.
 * @param {string} first @param {string} [second]
 */
const joined = (first, second) => (first && second ? `${first}\n\n${second}` : first || second || "");

/** A time in ms; now, where there is none that Date takes. @param {number} seconds */
function timeOf(seconds) {
  const time = new Date(1000 * seconds).getTime();
  return seconds && !Number.isNaN(time) ? time : Date.now();
}

/**
 * A chat's id, by which another import knows it again; a new one where the export has none.
 * @param {string} program @param {unknown} id of the export
 */
export const idOf = (program, id) =>
  typeof id === "string" && id ? `${program} ${id.slice(0, 100)}` : crypto.randomUUID();

/** A value of an export as text; "" if it is none. @param {unknown} value */
export const textOf = (value) => (typeof value === "string" ? value : "");

/** What stands in a message for a picture or a file, which is not imported. */
export const attachmentMark = () => `[${t("attachment")}]`;
