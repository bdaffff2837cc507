/**
 * The MCP servers whose tools the page's models may use: those that the user has added, stored in this browser with their
 * tokens and tools, and those that `build.py serve --api --mcp` relays. A server gets no request before the user connects to
 * it, or one of its tools is called.
 */
import { t } from "../../language/phrase.js";
import { bytesOf } from "../../sdk/base64.js";
import { read, write } from "../../text_store.js";
import { openSignIn, redirectUrl } from "./sign_in.js";

/**
 * @typedef {import("../../sdk/types.d.ts").McpServer} McpServer
 * @typedef {import("../../sdk/types.d.ts").McpOptions} McpOptions
 * @typedef {import("../../sdk/bridge.js").RelayedServer} RelayedServer
 *
 * @typedef {{ own: string, name: string, description: string, parameters: Record<string, any>, unusable?: string }} KnownTool
 *   `own`: the server's name of it; `unusable`: why its arguments cannot be constrained
 *
 * @typedef {object} Stored
 * @property {string} name
 * @property {string} url
 * @property {string} secret a token, or "HEADER: VALUE"
 * @property {boolean} on whether models may call its tools
 * @property {KnownTool[]} tools as the server listed them last
 * @property {string[]} off tools that are switched off, by the server's names
 * @property {import("../../sdk/types.d.ts").McpGrant | null} grant what signing in has given
 *
 * @typedef {{ time: number, tool: string, given: Record<string, any>, failed: string | null }} Call
 *
 * @typedef {object} Rest
 * @property {boolean} relayed by the command line
 * @property {Record<string, string>} headers of each request
 * @property {Promise<McpServer> | null} opening
 * @property {object | null} attempt the latest one to connect: an earlier one that is still under way is closed
 * @property {McpServer | null} server while it is connected
 * @property {string | null} error why it could not be connected
 * @property {Call[]} calls of this visit, the last ones
 *
 * @typedef {Stored & Rest} Entry
 *
 * @typedef {object} RunOptions
 * @property {AbortSignal} [signal]
 * @property {(text: string) => void} [onProgress] gets what the tool says of its progress
 *
 * @typedef {{ name: string, blob: Blob }} ToolFile
 *
 * @typedef {object} SourceTool
 * @property {string} name
 * @property {string} description
 * @property {Record<string, any>} parameters
 * @property {(given: Record<string, any>, options: RunOptions) => Promise<{ text: string, files: ToolFile[], failed: boolean }>} run
 *
 * @typedef {object} Source the tools of one server, for the page's registry of tools
 * @property {string} id stable between visits
 * @property {string} name for the user
 * @property {SourceTool[]} tools
 * @property {() => Promise<void>} prepare connects, and rejects with an error that says what to do
 */

const STORED = "mcp"; // in the text store
const SWITCHES = "mcp-relayed"; // beside it: what the user switched off of servers that the command line relays
const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,27}$/;
const TOOL = /^[A-Za-z0-9_-]{1,64}$/;
const HEADER = /^([A-Za-z][\w-]*):\s*(\S.*)$/;
const MOST_CALLS = 50; // that the log holds, for each server

export class McpServers {
  /** @type {Entry[]} */
  #all = [];
  /** @type {Entry[]} the user's that a relayed one of the same name hides */
  #hidden = [];
  /** @type {Promise<void> | null} */
  #loaded = null;
  /** @type {Record<string, { on?: boolean, off?: string[] }>} of relayed servers, by their names */
  #switches = {};
  #parts;

  /**
   * @param {{ wisp: () => Promise<import("../../wisp.js").Wisp>, ask: McpOptions["onInput"], changed: () => void,
   *   called: (name: string) => void }} parts `changed`: the list has changed, or a server's tools; `called`: a call goes to one
   */
  constructor(parts) {
    this.#parts = parts;
  }

  /** @returns {Promise<Entry[]>} */
  async list() {
    await this.#load().catch((error) => console.warn("The list of MCP servers cannot be read:", error));
    return this.#all;
  }

  /**
   * Adds or changes a server, and connects to it. Without a secret the stored one stays if the address is the same.
   * Rejects where it cannot be connected, with the field at fault as `param`; it is stored then, too.
   * @param {{ name: string, url: string, secret?: string, old?: string }} server `old`: the name of one that is changed
   * @param {AbortSignal} [signal] the user waits no longer
   */
  async set({ name, url, secret, old }, signal) {
    const all = await this.list();
    if (!NAME.test(name)) throw atFault("name", t("A name has letters, digits, dashes and underscores."));
    if (all.some((entry) => entry.name === name && (entry.name !== old || entry.relayed)))
      throw atFault("name", t("There is a server {name} already.", { name }));
    const before = all.find((entry) => entry.name === old && !entry.relayed);
    if (!URL.canParse(url)) throw atFault("url", t("This is no address."));
    const known = before?.url === url ? before : null;
    const entry = made({
      name,
      url,
      secret: secret || (known?.secret ?? ""),
      on: true,
      tools: [],
      off: known?.off ?? [],
      grant: known?.grant ?? null,
    });
    await this.#close(before);
    this.#all = [...all.filter((other) => other !== before), entry];
    await this.#store();
    await this.open(entry, signal);
  }

  /** @param {Entry} entry */
  async remove(entry) {
    await this.#close(entry);
    this.#all = this.#all.filter((other) => other !== entry);
    await this.#store();
  }

  /** Sets whether models get a server's tools. @param {Entry} entry @param {boolean} on */
  async turn(entry, on) {
    entry.on = on;
    if (!on) await this.#close(entry);
    await this.#store();
  }

  /** Switches some of a server's tools on or off. @param {Entry} entry @param {string[]} tools the server's names @param {boolean} on */
  async turnTools(entry, tools, on) {
    const others = entry.off.filter((own) => !tools.includes(own));
    entry.off = on ? others : [...others, ...tools];
    await this.#store();
  }

  /** Takes over the servers of the command line. @param {RelayedServer[]} servers */
  async relay(servers) {
    const all = await this.list();
    const before = new Map(all.filter(({ relayed }) => relayed).map((entry) => [entry.name, entry]));
    for (const entry of before.values()) await this.#close(entry);
    const own = [...all.filter(({ relayed }) => !relayed), ...this.#hidden];
    const named = new Set(servers.map(({ name }) => name));
    const relayed = servers.map(({ headers, ...server }) => {
      const known = { ...this.#switches[server.name], ...before.get(server.name) };
      const { on = true, off = [], tools = [], calls = [] } = known;
      return { ...made({ ...server, secret: "", on, tools, off, grant: null }), calls, relayed: true, headers };
    });
    this.#hidden = own.filter(({ name }) => named.has(name));
    this.#all = [...own.filter(({ name }) => !named.has(name)), ...relayed];
    this.#parts.changed();
  }

  /**
   * Connects to a server, anew if it is connected. The user may have to sign in.
   * @param {Entry} entry @param {AbortSignal} [signal] @returns {Promise<McpServer>}
   */
  async open(entry, signal) {
    await this.#close(entry);
    return (entry.opening = this.#connect(entry, openSignIn, signal));
  }

  /** The tools that are on, of servers that are on, without tools whose arguments cannot be constrained. @returns {Source[]} */
  get sources() {
    return this.#all
      .filter(({ on }) => on)
      .map((entry) => ({
        // with the address: permissions of a server are not those of another one that takes its name
        id: `mcp-${digest(entry.relayed ? `relayed ${entry.name}` : `${entry.name} ${entry.url}`)}`,
        name: entry.name,
        tools: entry.tools.filter((tool) => isOffered(entry, tool)).map((tool) => this.#sourceTool(entry, tool)),
        prepare: async () => void (await this.#opened(entry)),
      }));
  }

  /** @param {Entry} entry @param {KnownTool} tool @returns {SourceTool} */
  #sourceTool(entry, { own, name, description, parameters }) {
    return { name, description, parameters, run: (given, options) => this.#run(entry, own, given, options) };
  }

  /** A server for its list of prompts and resources. @param {Entry} entry @returns {import("./offers.js").Server} */
  server(entry) {
    return {
      name: entry.name,
      opened: () => this.#opened(entry),
      prompt: (name, given = {}) => this.#called(entry, name, given, (server) => server.prompt(name, given)),
      read: (uri) => this.#called(entry, uri, {}, (server) => server.read(uri)),
    };
  }

  /** @param {Entry} entry @param {string} tool @param {Record<string, any>} given @param {RunOptions} options */
  #run(entry, tool, given, { signal, onProgress }) {
    return this.#called(entry, tool, given, async (server, call) => {
      const tell = (/** @type {any} */ { message, progress, total }) =>
        onProgress?.(message ?? `${progress}${total ? ` / ${total}` : ""}`);
      const { text, media, failed } = await server.call(tool, given, { signal, onProgress: tell });
      if (failed) call.failed = text;
      return { text, files: media.map(fileOf), failed };
    });
  }

  /**
   * Does what goes to a server, and logs it. `what`: a tool, a prompt, or a resource's address
   * @template T @param {Entry} entry @param {string} what @param {Record<string, any>} given
   * @param {(server: McpServer, call: Call) => Promise<T>} work @returns {Promise<T>}
   */
  async #called(entry, what, given, work) {
    /** @type {Call} */
    const call = { time: Date.now(), tool: what, given, failed: null };
    entry.calls = [...entry.calls, call].slice(-MOST_CALLS);
    this.#parts.called(entry.name);
    this.#parts.changed();
    try {
      return await work(await this.#opened(entry), call);
    } catch (/** @type {any} */ error) {
      call.failed = `${error?.message ?? error}`;
      throw error;
    }
  }

  /** The connected server. @param {Entry} entry */
  #opened(entry) {
    return (entry.opening ??= this.#connect(entry, signInInSettings));
  }

  /**
   * @param {Entry} entry @param {import("../../sdk/types.d.ts").McpSignIn["open"]} open @param {AbortSignal} [signal]
   * @returns {Promise<McpServer>}
   */
  async #connect(entry, open, signal) {
    entry.error = null;
    const attempt = (entry.attempt = {});
    try {
      const wisp = await this.#parts.wisp();
      const [, header, value] = HEADER.exec(entry.secret) ?? [];
      const server = await wisp.mcp.connect(entry.url, {
        headers: { ...entry.headers, ...(header && { [header]: value }) },
        ...(!header && entry.secret && { token: entry.secret }),
        ...(!entry.secret && !entry.relayed && { signIn: this.#signIn(entry, open) }),
        signal,
        onInput: this.#parts.ask,
        onTools: () => void this.#check(entry).then(this.#parts.changed),
        onClose: () => {
          if (entry.attempt === attempt) entry.server = entry.opening = null;
          this.#parts.changed();
        },
      });
      if (entry.attempt !== attempt) {
        await server.close().catch(() => {});
        throw new Error(`${t("The server was turned off or changed meanwhile.")}`);
      }
      entry.server = server;
      await this.#check(entry);
      return server;
    } catch (/** @type {any} */ error) {
      if (entry.attempt === attempt) {
        entry.error = error.message;
        entry.opening = null;
      }
      throw error;
    } finally {
      this.#parts.changed();
    }
  }

  /** @param {Entry} entry @param {import("../../sdk/types.d.ts").McpSignIn["open"]} open */
  #signIn(entry, open) {
    return {
      redirectUrl: redirectUrl(),
      open,
      stored: entry.grant,
      onStored: (/** @type {import("../../sdk/types.d.ts").McpGrant} */ grant) => {
        entry.grant = grant;
        return this.#store();
      },
    };
  }

  /** Takes over a server's tools. Finds those whose arguments cannot be constrained: a request with them would fail. @param {Entry} entry */
  async #check(entry) {
    const wisp = await this.#parts.wisp();
    /** @type {KnownTool[]} */
    const tools = [];
    for (const tool of entry.server?.tools ?? []) {
      const { own, function: described } = tool;
      const { name, description = "", parameters } = described;
      if (!TOOL.test(name) || tools.some((other) => other.name === name)) continue;
      const unusable = (await wisp.mcp.unusable(tool)) ?? undefined;
      tools.push({ own, name, description, parameters: /** @type {any} */ (parameters), unusable });
    }
    entry.tools = tools;
    await this.#store();
  }

  /** @param {Entry | undefined} entry */
  async #close(entry) {
    const server = entry?.server;
    if (entry) entry.server = entry.opening = entry.error = entry.attempt = null;
    await server?.close().catch(() => {});
  }

  /** Adds the stored servers, once. Rejects where the storage cannot be read; the next call tries again. */
  #load() {
    return (this.#loaded ??= this.#read().catch((error) => {
      this.#loaded = null;
      throw error;
    }));
  }

  async #read() {
    const known = new Set(this.#all.map(({ name }) => name));
    const added = listOf(await read(STORED)).filter(({ name }) => !known.has(name));
    this.#switches = switchesOf(await read(SWITCHES));
    this.#all = [...added.map(made), ...this.#all];
    this.#parts.changed();
  }

  async #store() {
    await this.#load(); // servers that were not read yet would be lost
    const own = [...this.#all.filter(({ relayed }) => !relayed), ...this.#hidden];
    for (const { name, relayed, on, off } of this.#all) if (relayed) this.#switches[name] = { on, off };
    await write(STORED, JSON.stringify(own.map(stored)));
    await write(SWITCHES, JSON.stringify(this.#switches));
    this.#parts.changed();
  }
}

/** The stored servers, without damaged ones. @param {string | undefined} text @returns {Stored[]} */
function listOf(text) {
  try {
    const found = JSON.parse(text ?? "[]");
    return found.filter((/** @type {any} */ one) => NAME.test(one?.name ?? "") && URL.canParse(one.url));
  } catch {
    return [];
  }
}

/** The stored switches of relayed servers, without damaged ones. @param {string | undefined} text */
function switchesOf(text) {
  try {
    const found = Object.entries(JSON.parse(text ?? "{}"));
    return Object.fromEntries(found.filter(([, { off }]) => Array.isArray(off)));
  } catch {
    return {};
  }
}

/** Whether models get a tool of a server that is on. @param {Entry} entry @param {KnownTool} tool */
export const isOffered = ({ off }, { own, unusable }) => !unusable && !off.includes(own);

/** @param {Entry} entry @returns {Stored} */
const stored = ({ name, url, secret, on, tools, off, grant }) => ({ name, url, secret, on, tools, off, grant });

/** Asks nobody in the middle of an answer. @returns {Promise<string>} */
const signInInSettings = () => Promise.reject(new Error(`${t("Sign in first: connect to it in Settings.")}`));

/** @param {Stored} stored @returns {Entry} */
const made = (stored) => ({
  ...stored,
  tools: Array.isArray(stored.tools) ? stored.tools : [],
  off: Array.isArray(stored.off) ? stored.off : [],
  relayed: false,
  headers: {},
  opening: null,
  attempt: null,
  server: null,
  error: null,
  calls: [],
});

/** @param {import("../../sdk/types.d.ts").McpMedium} medium @param {number} index @returns {ToolFile} */
function fileOf({ mimeType, data }, index) {
  const bytes = bytesOf(data);
  const ending = /^\w+\/(\w+)/.exec(mimeType)?.[1] ?? "bin";
  return { name: `${index + 1}.${ending}`, blob: new Blob([bytes], { type: mimeType }) };
}

/** @param {string} param the field @param {import("../texts.js").Text} message */
const atFault = (param, message) => Object.assign(new Error(`${message}`), { param });

/** 16 hexadecimal digits that differ between texts: FNV-1a from two starts. @param {string} text */
function digest(text) {
  const half = (/** @type {number} */ start) => {
    let hash = start;
    for (const byte of new TextEncoder().encode(text)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
    return hash.toString(16).padStart(8, "0");
  };
  return half(0x811c9dc5) + half(0x9e3779b9);
}
