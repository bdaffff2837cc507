/**
 * The responses endpoint with MCP servers among its tools, as OpenAI's documents have them: the page connects to the
 * servers, runs the calls that need no approval, and asks the model again with their results. Each turn is a request of
 * the engine with functions in the place of the servers' tools.
 * https://platform.openai.com/docs/guides/tools-connectors-mcp
 */
import { distinct } from "./distinct_names.js";
import { callItems, hasMcp, serversOf, told, withoutMcp } from "./mcp_items.js";
import { Output, callOf, newId } from "./mcp_output.js";
import { ChunkStream } from "./stream.js";

/**
 * @typedef {Record<string, any>} Json
 * @typedef {import("./types.d.ts").McpServer} McpServer
 * @typedef {import("./mcp_items.js").Wanted} Wanted
 * @typedef {(request: any, options?: import("./connection.js").CallOptions) => Promise<any>} Create
 * @typedef {Pick<import("./mcp.js").Mcp, "named" | "unusable">} Servers
 * @typedef {{ wanted: Wanted, server: McpServer, tools: import("./types.d.ts").McpTool[] }} Opened `tools`: those that the
 *   request allows, and to whose arguments the model can be held
 * @typedef {{ label: string, own: string, asks: boolean, server: McpServer, described: Json }} Tool `described`: the
 *   function that the model sees
 */

const MAX_TURNS = 8;

/**
 * `responses.create` that also takes tools of the type "mcp".
 * @param {Create} create the engine's @param {Servers} mcp @returns {Create}
 */
export function withMcp(create, mcp) {
  return async (request, options = {}) => {
    if (!hasMcp(request)) return create(request, options);
    const { signal: own, ...body } = request;
    const signal = options.signal ?? own;
    signal?.throwIfAborted();
    const controller = new AbortController();
    signal?.addEventListener("abort", () => controller.abort(signal.reason), { once: true });
    const servers = await opened(serversOf(body), mcp, controller.signal, body.model);
    const close = () => Promise.all(servers.map(({ server }) => server.close().catch(() => {})));
    const stream = new ChunkStream(controller);
    /** @type {any} */
    let last = null;
    const emit = (/** @type {Json} */ event) => {
      last = event;
      stream.push(event);
    };
    let run;
    try {
      run = new Run(create, body, { servers, emit, signal: controller.signal });
    } catch (error) {
      await close();
      throw error;
    }
    const done = run.answer().finally(close);
    if (!body.stream) {
      await done;
      return last.response;
    }
    done.then(
      () => stream.end(),
      (error) => stream.end(error),
    );
    return stream;
  };
}

/**
 * Connects to servers; if one fails, to none.
 * @param {Wanted[]} wanted @param {Servers} mcp @param {AbortSignal} signal @param {string} [model]
 * @returns {Promise<Opened[]>}
 */
async function opened(wanted, mcp, signal, model) {
  const tried = await Promise.allSettled(
    wanted.map(async (one) => {
      const server = await mcp.named(one, signal);
      const allowed = server.tools.filter(({ own }) => one.allows(own));
      const reasons = await Promise.all(allowed.map((tool) => mcp.unusable(tool, { model })));
      return { wanted: one, server, tools: allowed.filter((_, i) => reasons[i] === null) };
    }),
  );
  const failed = tried.find((one) => one.status === "rejected");
  const done = tried.flatMap((one) => (one.status === "fulfilled" ? [one.value] : []));
  if (!failed) return done;
  for (const { server } of done) await server.close().catch(() => {});
  throw failed.reason;
}

/** One answer, of several turns. */
class Run {
  #create;
  #request;
  #tools;
  #output;
  #signal;
  /** @type {any} the items that the model is asked with */
  #input;
  /** @type {Json[]} calls that the user has approved */
  #approved;
  /** @type {any} of all turns */
  #usage = null;
  /** @type {Json} the first turn's response, which has the answer's id */
  #begun = {};

  /**
   * @param {Create} create @param {Json} request
   * @param {{ servers: Opened[], emit: (event: Json) => void, signal: AbortSignal }} parts
   */
  constructor(create, request, { servers, emit, signal }) {
    this.#create = create;
    this.#request = request;
    this.#signal = signal;
    this.#tools = toolsOf(request, servers);
    this.#output = new Output(emit, (name) => this.#tools.find(({ described }) => described.name === name));
    const { items, approved } = withoutMcp(
      request.input,
      (label, own) => this.#tool(label, own)?.described.name ?? own,
    );
    this.#input = typeof items === "string" ? [{ type: "message", role: "user", content: items }] : items;
    this.#approved = approved;
  }

  /** Asks the model until it calls no tool that may run. */
  async answer() {
    const approved = this.#approved.map(({ id, server_label: label, name: own, arguments: text }) =>
      this.#run(callOf({ label, own }, { arguments: text, approval_request_id: id })),
    );
    const ran = await Promise.all(approved);
    this.#extend(ran);
    for (let turn = 1; ; turn++) {
      const response = await this.#turn(turn, ran);
      const { calls } = this.#output;
      const free = calls.filter(({ called }) => !called.asks);
      const whole = response.status === "completed"; // else the arguments may be cut, too
      const items = whole
        ? await Promise.all(free.map(({ item }) => this.#run(item)))
        : free.map(({ item }) => cut(item));
      for (const { item, index } of free) this.#output.end(item, index);
      this.#extend(items);
      const waits = calls.length > free.length || this.#output.items.some(({ type }) => type === "function_call");
      if (!free.length || waits || response.status !== "completed")
        return this.#output.tell(`response.${response.status}`, { response: this.#whole(response) });
    }
  }

  /** One request of the engine. @param {number} turn @param {Json[]} ran before it @returns {Promise<Json>} its response */
  async #turn(turn, ran) {
    const { tools, tool_choice: choice, max_tool_calls: _, ...rest } = this.#request;
    const functions = tools.filter((/** @type {Json} */ { type }) => type !== "mcp");
    const request = {
      ...rest,
      input: this.#input,
      tools: [...functions, ...this.#tools.map(({ described }) => described)],
      tool_choice: turn === MAX_TURNS ? "none" : turn > 1 ? "auto" : this.#chosen(choice),
      stream: true,
    };
    /** @type {any} */
    let response = null;
    this.#output.begin();
    for await (const event of await this.#create(request, { signal: this.#signal })) {
      if (event.output_index !== undefined) this.#output.pass(event);
      else if (!event.response) this.#output.tell(event.type, event);
      else if (!["response.created", "response.in_progress"].includes(event.type)) response = event.response;
      else if (turn === 1) this.#begin(event, ran);
    }
    this.#signal.throwIfAborted();
    this.#usage = sum(this.#usage, response.usage);
    return response;
  }

  /** The first events: then what the servers offer, and the calls that were approved. @param {Json} event @param {Json[]} ran */
  #begin({ type, response }, ran) {
    this.#begun = response;
    this.#output.tell(type, { response: this.#whole(response) });
    if (type !== "response.in_progress") return;
    for (const label of new Set(this.#tools.map((tool) => tool.label))) {
      const own = this.#tools.filter((tool) => tool.label === label);
      const tools = own.map((tool) => ({
        name: tool.own,
        description: tool.described.description,
        input_schema: tool.described.parameters,
      }));
      this.#output.list({ id: newId("mcpl"), type: "mcp_list_tools", server_label: label, tools, error: null });
    }
    for (const item of ran) this.#output.ran(item);
    this.#output.begin();
  }

  /** Runs a call; the item gets its output, or an error. @param {Json} item */
  async #run(item) {
    try {
      const tool = this.#tool(item.server_label, item.name);
      if (!tool) throw new Error(`The server ${item.server_label} has no tool ${item.name} that this request allows.`);
      const given = JSON.parse(item.arguments || "{}");
      const { text, failed } = await tool.server.call(tool.own, given, { signal: this.#signal });
      item[failed ? "error" : "output"] = text;
    } catch (/** @type {any} */ error) {
      this.#signal.throwIfAborted();
      item.error = `${error?.message ?? error}`;
    }
    item.status = item.error ? "failed" : "completed";
    return item;
  }

  /** The model is told calls and their results. @param {Json[]} calls */
  #extend(calls) {
    const named = (/** @type {Json} */ item) => this.#tool(item.server_label, item.name)?.described.name ?? item.name;
    const items = calls.map((item) => callItems(item, named(item), item.error ? told(item.error) : item.output));
    this.#input = [...this.#input, ...items.map(([call]) => call), ...items.map(([, result]) => result)];
  }

  /** The response as the client sees it. @param {Json} response */
  #whole(response) {
    const tools = this.#request.tools.map((/** @type {Json} */ { authorization, headers, ...tool }) => tool);
    const { id, created_at } = this.#begun;
    const choice = this.#request.tool_choice ?? "auto";
    const usage = this.#usage ?? response.usage;
    return { ...response, id, created_at, tools, tool_choice: choice, output: [...this.#output.items], usage };
  }

  /** The tool_choice of functions for one of servers. @param {any} choice */
  #chosen(choice) {
    if (choice?.type !== "mcp") return choice;
    const { server_label: label, name } = choice;
    const among = this.#tools.filter((tool) => tool.label === label && (!name || tool.own === name));
    const tools = among.map(({ described }) => ({ type: "function", name: described.name }));
    return { type: "allowed_tools", mode: "required", tools };
  }

  /** @param {string} label @param {string} own */
  #tool(label, own) {
    return this.#tools.find((tool) => tool.label === label && tool.own === own);
  }
}

/**
 * The tools that a request allows, with names that differ.
 * @param {Json} request @param {Opened[]} servers @returns {Tool[]}
 */
function toolsOf({ tools }, servers) {
  const all = servers.flatMap(({ tools, ...server }) => tools.map((tool) => ({ ...server, tool })));
  const functions = tools.filter((/** @type {Json} */ { type }) => type === "function");
  const named = [
    ...functions.map((/** @type {Json} */ { name }) => ({ name: `${name}` })),
    ...all.map(({ wanted, tool }) => ({ name: tool.function.name, server: wanted.label })),
  ];
  const given = distinct(named).slice(functions.length);
  return all.map(({ wanted, server, tool: { own, function: described } }, i) => {
    const { description, parameters } = described;
    const shown = { type: "function", name: given[i], description, parameters };
    return { label: wanted.label, own, asks: wanted.asks(own), server, described: shown };
  });
}

/** The sum of the numbers of two usages. @param {any} one @param {any} other @returns {any} */
function sum(one, other) {
  if (typeof other === "number") return (one ?? 0) + other;
  if (typeof other !== "object" || other === null) return other;
  return Object.fromEntries(Object.entries(other).map(([name, value]) => [name, sum(one?.[name], value)]));
}

/** A call of an answer that ended before it was whole. @param {Json} item */
function cut(item) {
  return Object.assign(item, {
    status: "failed",
    error: "The answer was cut before this call was whole: it has not run.",
  });
}
