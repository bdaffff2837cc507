/**
 * WebMCP: tools that the documents of a page offer with `document.modelContext.registerTool()`, for agents of the page.
 *
 * The draft (https://webmachinelearning.github.io/webmcp/) has registerTool() and the event "toolchange"; getTools() and
 * executeTool() are Chromium's, for agents in a page. Other browsers have none of it: then there are no tools.
 */

/**
 * @typedef {import("./types.d.ts").AgentTool} AgentTool
 * @typedef {{ name: string, title?: string, description: string, inputSchema?: string | object, origin?: string }} Registered
 * @typedef {EventTarget & { getTools(): Promise<Registered[]>,
 *   executeTool(tool: Registered, input: object, options?: { signal?: AbortSignal | null }): Promise<any> }} ModelContext
 */

/** The page's model context; null where the browser has none that agents can use. @returns {ModelContext | null} */
export function modelContext() {
  const context = /** @type {any} */ (globalThis.document)?.modelContext;
  return typeof context?.getTools === "function" && typeof context.executeTool === "function" ? context : null;
}

/**
 * The tools of the page's documents, as `engine.agents.run` takes them; none where the browser does not know WebMCP.
 * @returns {Promise<AgentTool[]>}
 */
export async function pageTools() {
  const context = modelContext();
  const registered = (await context?.getTools()) ?? [];
  return registered.map((tool) => ({
    type: "function",
    function: { name: tool.name, description: tool.description, parameters: schemaOf(tool) },
    run: (args, { signal }) => context?.executeTool(tool, args, { signal }),
  }));
}

/** @param {Registered} tool @returns {Record<string, any>} */
function schemaOf({ inputSchema }) {
  const schema = typeof inputSchema === "string" && inputSchema ? JSON.parse(inputSchema) : inputSchema;
  return schema || { type: "object", properties: {} };
}
