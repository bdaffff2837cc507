/**
 * The tools that models may call in the page's chats. Sources offer them: the code tools, MCP servers, pages with WebMCP.
 *
 * A source calls `offer(source)` with all of its tools, again when they change, and `withdraw(id)` when it has none any
 * more. It knows no chat and asks for no permission: the agent loop does, before it calls `run`.
 */
import { distinct } from "../sdk/distinct_names.js";

/**
 * @typedef {Record<string, any>} Json
 *
 * @typedef {object} ToolFile a picture, or another file that a call made
 * @property {string} name
 * @property {Blob} blob `blob.type` is its MIME type; pictures are shown, other files can be downloaded
 *
 * @typedef {object} ToolResult
 * @property {string} text what the model is told
 * @property {ToolFile[]} [files] what the user is shown
 * @property {boolean} [failed] the text says what went wrong
 *
 * @typedef {object} RunOptions
 * @property {AbortSignal} signal the user stopped the answer: `run` ends, and rejects with the signal's reason
 * @property {string} [chat] the id of the chat that asks; no chat sees variables or files of another
 * @property {ToolFile[]} [files] that the user has attached to the chat
 * @property {boolean} [isPrivate] nothing of the call may be stored
 * @property {(question: string) => Promise<boolean>} [confirm] asks the user something that the call's permission leaves
 *   open; without it the answer is no
 * @property {(text: string) => void} [onProgress] shows what the call is doing, until it ends
 *
 * @typedef {object} Tool
 * @property {string} name letters, digits and _ . : -, at most 64; a name that two sources have is shown to the model with
 *   the source's id before it
 * @property {string} [description] for the model
 * @property {Json} parameters JSON schema of an object, by which the arguments are constrained
 * @property {string} [title] for the user; default: the name
 * @property {(args: Json, options: RunOptions) => Promise<ToolResult | string | Json> | ToolResult | string | Json} run
 *   Runs the tool. Text and JSON are told to the model as they are. What it throws is told to the model as an error.
 *
 * @typedef {object} Source
 * @property {string} id stable between visits: letters, digits, _ and -, at most 40. Permissions and a chat's choice of
 *   sources are stored under it
 * @property {string | import("../language/phrase.js").Phrase} name for the user
 * @property {Tool[]} tools
 * @property {() => Promise<void>} [prepare] called when the user switches the source on in a chat; rejects with an error
 *   that says what to do
 *
 * @typedef {Tool & { source: Source, called: string }} Offered `called`: the name that the model uses
 */

const NAME = /^[A-Za-z0-9_.:-]{1,64}$/; // as chat requests have it
const ID = /^[A-Za-z0-9_-]{1,40}$/;

export class ToolRegistry {
  /** @type {Map<string, Source>} */
  #sources = new Map();
  /** @type {Set<() => void>} */
  #listeners = new Set();

  /** All sources, in the order in which they came. @returns {Source[]} */
  get sources() {
    return [...this.#sources.values()];
  }

  /** Adds a source, or replaces it. Throws on a wrong id or name. @param {Source} source */
  offer(source) {
    if (!ID.test(source.id)) throw new Error(`A source's id has 1 to 40 letters, digits, _ and -, not: ${source.id}`);
    const names = source.tools.map(({ name }) => name);
    const wrong = names.find((name, i) => !NAME.test(name) || names.indexOf(name) !== i);
    if (wrong !== undefined)
      throw new Error(`A tool's name has 1 to 64 letters, digits and _ . : -, and is used once, not: ${wrong}`);
    this.#sources.set(source.id, source);
    this.#changed();
  }

  /** Offers sources whose ids have a prefix, and removes the others that have it. @param {string} prefix @param {Source[]} sources */
  replace(prefix, sources) {
    const ids = sources.map(({ id }) => id);
    for (const { id } of this.sources) if (id.startsWith(prefix) && !ids.includes(id)) this.withdraw(id);
    for (const source of sources) this.offer(source);
  }

  /** Removes a source. @param {string} id */
  withdraw(id) {
    if (this.#sources.delete(id)) this.#changed();
  }

  /**
   * The tools of some sources.
   * @param {readonly string[]} ids of sources @returns {Offered[]}
   */
  of(ids) {
    const sources = this.sources.filter(({ id }) => ids.includes(id));
    const all = sources.flatMap((source) => source.tools.map((tool) => ({ tool, source })));
    const names = distinct(all.map(({ tool, source }) => ({ name: tool.name, server: source.id })));
    return all.map(({ tool, source }, i) => ({
      ...tool,
      run: (args, options) => tool.run(args, options),
      source,
      called: names[i],
    }));
  }

  /** Calls `listener` when a source comes, changes or goes. Returns a function that ends it. @param {() => void} listener */
  onChange(listener) {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  #changed() {
    for (const listener of this.#listeners) listener();
  }
}

/** The page's registry. */
export const tools = new ToolRegistry();
