import { WispError } from "./error.js";

/**
 * @typedef {import("./types.d.ts").McpOptions} McpOptions
 * @typedef {import("./types.d.ts").McpServer} McpServer
 * @typedef {import("./types.d.ts").AgentTool} AgentTool
 */

const SAFE = ["https:", "wss:"];
const PLAIN = ["http:", "ws:"]; // on this machine only
const UNFIT = ["unsupported_parameter", "invalid_value", "invalid_type"]; // codes of errors about a schema
const THIS_MACHINE = ["127.0.0.1", "localhost"];

/** Servers of the Model Context Protocol: `engine.mcp`. */
export class Mcp {
  /** @type {import("./bridge.js").RelayedServer[]} of the command line, while this page lends it its engine */
  static relayed = [];
  #module;
  #validate;

  /**
   * @param {string} module the address of what connects (app/mcp/client.js); it is loaded when it is first needed
   * @param {import("../wisp.js").Wisp["validate"]} validate the engine's
   */
  constructor(module, validate) {
    this.#module = module;
    this.#validate = validate;
  }

  /**
   * Connects to a server over streamable HTTP. Its `tools` are what `agents.run` takes.
   * @param {string | URL} url of a server that allows this page's origin (CORS) @param {McpOptions} [options]
   * @returns {Promise<McpServer>}
   */
  async connect(url, options = {}) {
    const address = checked(`${url}`);
    const { connect } = await import(/* @vite-ignore */ /* webpackIgnore: true */ this.#module).catch(notFetched);
    return connect(address, options, WispError);
  }

  /**
   * Why a loaded model cannot be held to the arguments of a tool: a request with it would fail. null: it can be.
   * @param {AgentTool} tool @param {{ model?: string }} [which] @returns {Promise<string | null>}
   */
  async unusable({ function: { parameters = {} } }, which) {
    try {
      await this.#validate({ json_schema: parameters }, "", which);
    } catch (/** @type {any} */ error) {
      if (UNFIT.includes(error.code)) return error.message;
    }
    return null;
  }

  /**
   * Connects to a server that a request names: by its address, or else by the label that it has on the command line.
   * @param {import("./mcp_items.js").Wanted} wanted @param {AbortSignal} signal @returns {Promise<McpServer>}
   */
  async named({ label, url, token, headers }, signal) {
    const known = url === undefined ? Mcp.relayed.find(({ name }) => name === label) : { url, headers: {} };
    if (known) return this.connect(known.url, { token, headers: { ...headers, ...known.headers }, signal });
    const message = `There is no MCP server ${label}: give its server_url, or name it with serve --api --mcp.`;
    throw new WispError({ message, type: "invalid_request_error", param: "tools", code: "invalid_value" });
  }
}

/** What connects is fetched later than the rest of the page, so it may be lacking offline. @param {unknown} cause @returns {never} */
function notFetched(cause) {
  const message =
    "The part of the page that connects to MCP servers cannot be fetched. Connect to the network, and try again.";
  const error = new WispError({ message, type: "server_error", param: null, code: "network_error" });
  throw Object.assign(error, { cause });
}

/** @param {string} address @returns {URL} */
function checked(address) {
  const url = URL.canParse(address, location.href) ? new URL(address, location.href) : null;
  if (url && SAFE.includes(url.protocol)) return url;
  if (url && PLAIN.includes(url.protocol) && THIS_MACHINE.includes(url.hostname)) return url;
  const message = `${address} is no address of an MCP server: give one with https://, or with http:// on this machine.`;
  throw new WispError({ message, type: "invalid_request_error", param: "url", code: "invalid_value" });
}
