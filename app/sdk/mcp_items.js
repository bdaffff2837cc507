/** MCP servers in requests of the responses endpoint: what a request says of them, and the items of earlier calls. */
import { WispError } from "./error.js";

/**
 * @typedef {Record<string, any>} Json
 *
 * @typedef {object} Wanted a server that a request names
 * @property {string} label
 * @property {string | undefined} url
 * @property {string | undefined} token
 * @property {Record<string, string>} headers
 * @property {(tool: string) => boolean} allows whether the model may call a tool of this name
 * @property {(tool: string) => boolean} asks whether the user must approve its calls
 */

const LABEL = /^[A-Za-z0-9_-]{1,64}$/;

/** Whether a request of the responses endpoint names MCP servers. @param {Json} request */
export const hasMcp = ({ tools }) =>
  Array.isArray(tools) && tools.some((/** @type {any} */ tool) => tool?.type === "mcp");

/**
 * The servers of a request. https://platform.openai.com/docs/guides/tools-connectors-mcp has the fields.
 * @param {Json} request @returns {Wanted[]}
 */
export function serversOf({ tools }) {
  const labels = new Set();
  return tools.flatMap((/** @type {Json} */ tool, /** @type {number} */ i) => {
    if (tool?.type !== "mcp") return [];
    const path = `tools[${i}]`;
    const { server_label: label, server_url: url, connector_id: connector, authorization, headers } = tool;
    if (typeof label !== "string" || !LABEL.test(label) || labels.has(label))
      throw wrong(`${path}.server_label`, "must have 1 to 64 letters, digits, _ and -, and be used once");
    labels.add(label);
    if (connector)
      throw wrong(`${path}.connector_id`, "names a service of OpenAI's, which is not here; give a server_url");
    if (url !== undefined && typeof url !== "string") throw wrong(`${path}.server_url`, "must be a string");
    if (headers && (typeof headers !== "object" || Object.values(headers).some((value) => typeof value !== "string")))
      throw wrong(`${path}.headers`, "must be an object of strings");
    if (authorization && typeof authorization !== "string") throw wrong(`${path}.authorization`, "must be a string");
    const allowed = namesOf(tool.allowed_tools, `${path}.allowed_tools`);
    return [
      {
        label,
        url,
        token: authorization ?? undefined,
        headers: { ...headers },
        allows: (/** @type {string} */ name) => allowed?.includes(name) ?? true,
        asks: approval(tool.require_approval ?? "always", `${path}.require_approval`),
      },
    ];
  });
}

/** @param {any} setting @param {string} path @returns {(tool: string) => boolean} */
function approval(setting, path) {
  if (setting === "always" || setting === "never") return () => setting === "always";
  if (typeof setting !== "object" || setting === null || !("always" in setting || "never" in setting))
    throw wrong(path, 'must be "always", "never", or have lists of tools for them');
  const [always, never] = [setting.always, setting.never].map((list) => namesOf(list, path) ?? []);
  return (name) => always.includes(name) || (!never.includes(name) && !("always" in setting && !("never" in setting)));
}

/** @param {any} list of names, or with them as `tool_names` @param {string} path @returns {string[] | null} */
function namesOf(list, path) {
  if (list === undefined || list === null) return null;
  const names = Array.isArray(list) ? list : list.tool_names;
  if (Array.isArray(names) && names.every((name) => typeof name === "string")) return names;
  throw wrong(path, "must be a list of the names of tools, or have one as tool_names; other filters are not supported");
}

/**
 * A request's items without those about MCP servers, which become calls of functions and their results.
 * @param {any} input @param {(label: string, tool: string) => string} functionName
 * @returns {{ items: any, approved: Json[] }} `approved`: the requests that the user approved, which are still to run
 */
export function withoutMcp(input, functionName) {
  if (!Array.isArray(input)) return { items: input, approved: [] };
  const answers = new Map(
    input.filter((item) => item?.type === "mcp_approval_response").map((item) => [item.approval_request_id, item]),
  );
  const ran = new Set(input.filter((item) => item?.type === "mcp_call").map((item) => item.approval_request_id));
  /** @type {Json[]} */
  const approved = [];
  const items = input.flatMap((item, i) => {
    if (item?.type === "mcp_call")
      return callItems(item, functionName(item.server_label, item.name), item.error ? told(item.error) : item.output);
    if (item?.type === "mcp_approval_request") {
      const answer = answers.get(item.id);
      if (!answer) throw wrong(`input[${i}]`, "has no mcp_approval_response");
      if (answer.approve && !ran.has(item.id)) approved.push(item);
      if (answer.approve) return [];
      const why = answer.reason ? ` ${answer.reason}` : "";
      return callItems(
        item,
        functionName(item.server_label, item.name),
        told(`The user has not approved this call.${why}`),
      );
    }
    return ["mcp_list_tools", "mcp_approval_response"].includes(item?.type) ? [] : [item];
  });
  return { items, approved };
}

/** A call and its result, as items of functions. @param {Json} call @param {string} name @param {string} output @returns {Json[]} */
export const callItems = (call, name, output) => [
  { type: "function_call", call_id: call.id, name, arguments: call.arguments },
  { type: "function_call_output", call_id: call.id, output: output ?? "" },
];

/** An error as a model is told it. @param {string} error */
export const told = (error) => JSON.stringify({ error });

/** @param {string} param @param {string} what */
function wrong(param, what) {
  return new WispError({ message: `${param} ${what}.`, type: "invalid_request_error", param, code: "invalid_value" });
}
