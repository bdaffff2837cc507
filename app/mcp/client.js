/**
 * Servers of the Model Context Protocol, by way of its official client, which knows the revisions up to 2025-11-25 (with
 * a session) and 2026-07-28 (without one). A bundle of its own, loaded with the first connection.
 * https://modelcontextprotocol.io/specification/2026-07-28
 */
import { Client, StreamableHTTPClientTransport, UnauthorizedError } from "@modelcontextprotocol/client";
import { config } from "zod/v4/core";
import { version } from "../../package.json";
import { chatMessages, resultMedia, resultText, toolName } from "./contents.js";
import { failure } from "./failure.js";
import { limitedFetch } from "./limited_fetch.js";
import { RelayTransport } from "./relay_transport.js";
import { closed } from "./schema.js";
import { SignIn } from "./sign_in.js";

/**
 * @typedef {typeof import("../sdk/error.js").WispError} FailureClass
 * @typedef {import("../sdk/types.d.ts").McpTool} McpTool
 * @typedef {import("../sdk/types.d.ts").McpOptions} McpOptions
 * @typedef {import("../sdk/types.d.ts").McpServer} McpServer
 * @typedef {import("@modelcontextprotocol/client").Tool} Tool
 */

config({ jitless: true }); // the page's policy forbids the code that zod would generate

const MOST_TOOLS = 1000; // of a server; further ones are left out
const NO_SUCH_TOOL = [-32601, -32602]; // the codes of "method not found" and "invalid params", of servers that have other tools by now
const TIMEOUT_S = 300; // a person may have to answer a question of the server meanwhile

/**
 * Connects to a server and lists its tools. Rejects with a WispError.
 * @param {URL} url https://..., http://127.0.0.1..., or the ws: address of a relay @param {McpOptions} options
 * @param {FailureClass} Failure the SDK's class of errors
 * @returns {Promise<McpServer>}
 */
export async function connect(url, options, Failure) {
  const server = new Server(url, options, Failure);
  await server.guard(() => server.open(), options.signal);
  return server;
}

/** @implements {McpServer} */
class Server {
  /** @type {McpTool[]} */
  tools = [];
  #url;
  #options;
  #Failure;
  #signIn;
  /** @type {StreamableHTTPClientTransport | null} */
  #current = null;
  /** @type {Client} */
  #client;
  /** @type {Promise<void> | null} a session that is begun in place of one that the server does not know any more */
  #renewing = null;

  /** @param {URL} url @param {McpOptions} options @param {FailureClass} Failure */
  constructor(url, options, Failure) {
    this.#url = url;
    this.#options = options;
    this.#Failure = Failure;
    this.#signIn = options.signIn ? new SignIn(options.signIn) : null;
    this.#client = this.#made("auto");
  }

  get name() {
    return this.#client.getServerVersion()?.name ?? this.#url.host;
  }

  get version() {
    return this.#client.getServerVersion()?.version ?? "";
  }

  get protocol() {
    return this.#client.getNegotiatedProtocolVersion() ?? "";
  }

  get instructions() {
    return this.#client.getInstructions() ?? "";
  }

  async open(signal = this.#options.signal) {
    const settings = this.#settings(signal);
    await this.#connected(settings);
    this.#client.onclose = () => this.#options.onClose?.();
    if (this.#client.getServerCapabilities()?.tools) this.#list((await this.#client.listTools({}, settings)).tools);
  }

  resources() {
    return this.#listed("resources", async (settings) => {
      const [{ resources }, { resourceTemplates }] = await Promise.all([
        this.#client.listResources({}, settings),
        this.#client.listResourceTemplates({}, settings),
      ]);
      const templates = resourceTemplates.map(({ uriTemplate, ...rest }) => ({
        ...rest,
        uri: uriTemplate,
        template: true,
      }));
      return [...resources, ...templates];
    });
  }

  /** @param {string} uri */
  read(uri) {
    return this.guard(async () => (await this.#client.readResource({ uri }, this.#settings())).contents);
  }

  prompts() {
    return this.#listed("prompts", async (settings) => (await this.#client.listPrompts({}, settings)).prompts);
  }

  /** @param {string} name @param {Record<string, string>} [given] */
  prompt(name, given = {}) {
    return this.guard(async () => {
      const { messages } = await this.#client.getPrompt({ name, arguments: given }, this.#settings());
      return chatMessages(messages);
    });
  }

  /** @param {string} name @param {Record<string, any>} given @param {import("../sdk/types.d.ts").McpCallOptions} [options] */
  call(name, given, { signal, onProgress } = {}) {
    const onprogress = (/** @type {any} */ progress) => {
      onProgress?.(progress);
      this.#options.onProgress?.({ tool: name, ...progress });
    };
    return this.guard(async () => {
      const settings = { ...this.#settings(signal), onprogress };
      const result = await this.#client.callTool({ name, arguments: given }, settings).catch(async (error) => {
        if (NO_SUCH_TOOL.includes(error?.code)) await this.#listAgain();
        throw error;
      });
      return { text: resultText(result), media: resultMedia(result), failed: result.isError === true };
    }, signal);
  }

  async close() {
    this.#client.onclose = undefined;
    await this.#client.close();
  }

  /**
   * Does the work; rejects with a WispError that says what failed.
   * @template T @param {() => Promise<T>} work @param {AbortSignal | null} [signal] of the work @returns {Promise<T>}
   */
  async guard(work, signal) {
    try {
      return await this.#inSession(() => this.#signingIn(work, signal), signal);
    } catch (error) {
      throw new this.#Failure(failure(error, this.#url.host, signal?.aborted));
    }
  }

  /** @param {"auto" | "legacy"} mode */
  #made(mode) {
    const { onInput, onTools } = this.#options;
    const client = new Client(
      { name: "wisp", title: "Wisp", version },
      {
        capabilities: onInput ? { elicitation: { form: { applyDefaults: true }, url: {} } } : {},
        versionNegotiation: { mode },
        ...(onTools && {
          listChanged: { tools: { onChanged: (error, tools) => error || this.#changed(tools ?? []) } },
        }),
      },
    );
    if (onInput) client.setRequestHandler("elicitation/create", async ({ params }) => this.#asked(params));
    return client;
  }

  /**
   * Connects with the newest revision; to a server that ends when it is asked for it, with the older ones. The user signs
   * in where the server asks for that.
   * @param {{ signal?: AbortSignal }} settings
   */
  async #connected(settings) {
    const transport = this.#transport();
    try {
      await this.#client.connect(transport, settings);
    } catch (error) {
      if (settings.signal?.aborted) throw error;
      if (this.#isRelay) this.#client = this.#made("legacy");
      else if (!(await this.#signedIn(transport, error, settings.signal))) throw error;
      else this.#client = this.#made("auto");
      await this.#client.connect(this.#transport(), settings);
    }
  }

  /**
   * Does the work again in a new session, where the server does not know this one: it has been started again. It has done
   * nothing of the work then.
   * @template T @param {() => Promise<T>} work @param {AbortSignal | null} [signal] @returns {Promise<T>}
   */
  async #inSession(work, signal) {
    const session = this.#current?.sessionId;
    try {
      return await work();
    } catch (error) {
      if (!session || signal?.aborted || !isUnknownSession(error)) throw error;
      if (this.#current?.sessionId === session) this.#renewing = this.#renewed(); // else another call has begun it
      await this.#renewing;
      return work();
    }
  }

  async #renewed() {
    this.#client.onclose = undefined;
    this.#client.close().catch(() => {});
    this.#client = this.#made("auto");
    try {
      await this.open(null);
    } catch (error) {
      this.#options.onClose?.();
      throw error;
    }
    this.#options.onTools?.(this.tools);
  }

  /**
   * Does the work again once the user has signed in for it, perhaps with more rights than before.
   * @template T @param {() => Promise<T>} work @param {AbortSignal | null} [signal] @returns {Promise<T>}
   */
  async #signingIn(work, signal) {
    try {
      return await work();
    } catch (error) {
      if (signal?.aborted || !(await this.#signedIn(this.#current, error, signal))) throw error;
      return work();
    }
  }

  /**
   * Waits for the user to sign in; false: the server does not ask for that.
   * @param {any} transport @param {unknown} error of a request @param {AbortSignal | null} [signal]
   */
  async #signedIn(transport, error, signal) {
    const params = await aborting(this.#signIn?.answer() ?? null, signal);
    if (params) await transport.finishAuth(params);
    return params !== null && error instanceof UnauthorizedError;
  }

  get #isRelay() {
    return this.#url.protocol.startsWith("ws");
  }

  #transport() {
    if (this.#isRelay) return new RelayTransport(this.#url);
    const { token, headers } = this.#options;
    const sent = { ...headers, ...(token && { Authorization: `Bearer ${token}` }) };
    this.#current = new StreamableHTTPClientTransport(this.#url, {
      requestInit: { headers: sent },
      fetch: limitedFetch(),
      ...(this.#signIn && { authProvider: this.#signIn }),
    });
    return this.#current;
  }

  /** @param {AbortSignal | null} [signal] */
  #settings(signal) {
    const timeout = 1000 * (this.#options.timeout ?? TIMEOUT_S);
    return { signal: signal ?? undefined, timeout, resetTimeoutOnProgress: true };
  }

  /**
   * @template T @param {"resources" | "prompts"} kind @param {(settings: Record<string, any>) => Promise<T[]>} list
   * @returns {Promise<T[]>} none where the server has none of the kind
   */
  #listed(kind, list) {
    return this.guard(async () => (this.#client.getServerCapabilities()?.[kind] ? list(this.#settings()) : []));
  }

  /** Lists the tools of a server that did not say that they have changed. */
  async #listAgain() {
    const { tools } = await this.#client.listTools({}, this.#settings()).catch(() => ({ tools: null }));
    const names = (/** @type {{ name: string }[]} */ listed) => `${listed.map(({ name }) => name)}`;
    if (tools && names(tools) !== names(this.tools.map(({ own }) => ({ name: own })))) this.#changed(tools);
  }

  /** @param {Tool[]} tools */
  #changed(tools) {
    this.#list(tools);
    this.#options.onTools?.(this.tools);
  }

  /** @param {Tool[]} tools */
  #list(tools) {
    this.tools = tools.slice(0, MOST_TOOLS).map((tool) => this.#tool(tool));
  }

  /** @param {Tool} tool @returns {McpTool} */
  #tool({ name, description, title, annotations, inputSchema }) {
    return {
      own: name,
      type: "function",
      function: {
        name: toolName(name, this.#options.name),
        description: description ?? title ?? annotations?.title ?? "",
        parameters: closed(inputSchema),
      },
      run: async (given, options) => {
        const { text, failed } = await this.call(name, given, options);
        if (failed) throw new Error(text);
        return text;
      },
    };
  }

  /** Asks the user what a server asks for. @param {any} params of elicitation/create @returns {Promise<any>} */
  async #asked({ message, requestedSchema, url }) {
    const answer = await this.#options.onInput?.({ server: this.name, message, schema: requestedSchema, url });
    if (answer === undefined) return { action: "cancel" };
    if (answer === null) return { action: "decline" };
    return url ? { action: "accept" } : { action: "accept", content: answer };
  }
}

/** Whether a server does not know a session: 404, as the specification has it, or 400. @param {any} error */
const isUnknownSession = ({ data, message }) =>
  data?.status === 404 || (data?.status === 400 && /session/i.test(message));

/**
 * A promise that also ends with a signal.
 * @template T @param {T | Promise<T>} promise @param {AbortSignal | null} [signal] @returns {Promise<T>}
 */
const aborting = (promise, signal) =>
  new Promise((resolve, reject) => {
    signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
    Promise.resolve(promise).then(resolve, reject);
  });
