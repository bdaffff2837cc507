/** The output of a response with calls of MCP servers: its items and its events, over several turns of the model. */

/**
 * @typedef {Record<string, any>} Json
 * @typedef {{ label: string, own: string, asks: boolean }} Called a tool of a server, by the server's name of it
 */

export class Output {
  /** @type {Json[]} */
  items = [];
  #number = 0;
  #start = 0; // the index of this turn's first item
  /** @type {Map<string, { item: Json, index: number, called: Called }>} item of the turn -> what stands for it */
  #calls = new Map();
  #emit;
  #find;

  /** @param {(event: Json) => void} emit @param {(name: string) => Called | undefined} find the server's tool of a function */
  constructor(emit, find) {
    this.#emit = emit;
    this.#find = find;
  }

  /** Begins a turn. */
  begin() {
    this.#start = this.items.length;
    this.#calls.clear();
  }

  /** The calls of servers' tools in this turn. */
  get calls() {
    return [...this.#calls.values()];
  }

  /** @param {string} type @param {Json} [fields] */
  tell(type, fields) {
    this.#emit({ type, ...fields, sequence_number: this.#number++ });
  }

  /** Adds an item that is complete. @param {Json} item */
  add(item) {
    const index = this.items.push(item) - 1;
    this.tell("response.output_item.added", { output_index: index, item });
    this.#over(item, index);
  }

  /** Adds the list of a server's tools. @param {Json} item */
  list(item) {
    const where = { item_id: item.id, output_index: this.items.push(item) - 1 };
    this.tell("response.output_item.added", { output_index: where.output_index, item: { ...item, tools: [] } });
    this.tell("response.mcp_list_tools.in_progress", where);
    this.tell("response.mcp_list_tools.completed", where);
    this.#over(item, where.output_index);
  }

  /** Adds a call that has run. @param {Json} item */
  ran(item) {
    const index = this.items.push(item) - 1;
    this.#called({ ...item, arguments: "", output: null, error: null, status: "in_progress" }, index);
    this.tell("response.mcp_call_arguments.done", { item_id: item.id, output_index: index, arguments: item.arguments });
    this.end(item, index);
  }

  /** Ends a call: it has an output or an error. @param {Json} item @param {number} index */
  end(item, index) {
    this.tell(`response.mcp_call.${item.error ? "failed" : "completed"}`, { item_id: item.id, output_index: index });
    this.#over(item, index);
  }

  /** Passes on an event of the engine about an item or a part of one. @param {Json} event */
  pass(event) {
    const { type, output_index: inner, item, item_id: id, sequence_number: _, ...rest } = event;
    const index = this.#start + inner;
    if (type === "response.output_item.added") return this.#added(item, index);
    const call = this.#calls.get(item?.id ?? id);
    if (!call) {
      if (item) this.items[index] = item;
      return this.tell(type, { ...rest, output_index: index, ...(item ? { item } : { item_id: id }) });
    }
    if (item) return this.#complete(call, item);
    if (call.called.asks) return;
    const { name, ...fields } = rest; // of a function
    const kind = type.replace("function_call_arguments", "mcp_call_arguments");
    this.tell(kind, { ...fields, item_id: call.item.id, output_index: index });
  }

  /** @param {Json} item @param {number} index */
  #added(item, index) {
    const called = item.type === "function_call" ? this.#find(item.name) : undefined;
    if (!called) {
      this.items[index] = item;
      return this.tell("response.output_item.added", { output_index: index, item });
    }
    const made = called.asks ? approvalOf(called) : callOf(called);
    this.items[index] = made;
    this.#calls.set(item.id, { item: made, index, called });
    if (!called.asks) this.#called(made, index);
  }

  /** @param {Json} item @param {number} index */
  #called(item, index) {
    this.tell("response.output_item.added", { output_index: index, item: { ...item } });
    this.tell("response.mcp_call.in_progress", { item_id: item.id, output_index: index });
  }

  /** A call has its arguments: it is to run, or to be approved. @param {{ item: Json, index: number, called: Called }} call @param {Json} done */
  #complete({ item, index, called }, done) {
    item.arguments = done.arguments;
    if (!called.asks) return;
    this.tell("response.output_item.added", { output_index: index, item });
    this.#over(item, index);
  }

  /** @param {Json} item @param {number} index */
  #over(item, index) {
    this.tell("response.output_item.done", { output_index: index, item });
  }
}

/** @param {string} kind */
export const newId = (kind) => `${kind}_${crypto.randomUUID().replaceAll("-", "")}`;

/** @param {{ label: string, own: string }} called @param {Json} [fields] @returns {Json} */
export const callOf = ({ label, own }, fields) => ({
  id: newId("mcp"),
  type: "mcp_call",
  server_label: label,
  name: own,
  arguments: "",
  output: null,
  error: null,
  approval_request_id: null,
  status: "in_progress",
  ...fields,
});

/** @param {Called} called @returns {Json} */
const approvalOf = ({ label, own }) => ({
  id: newId("mcpr"),
  type: "mcp_approval_request",
  server_label: label,
  name: own,
  arguments: "",
});
