/** WebMCP: offers the loaded model to agents of the browser, where it knows `document.modelContext`. */

const DESCRIPTION =
  "Asks the language model that is loaded in this page, and returns its answer. It runs on this computer; nothing is sent " +
  "to a server. It sees the prompt alone, not the page's chats.";
const INPUT = {
  type: "object",
  properties: { prompt: { type: "string", description: "the whole question, with all that it needs" } },
  required: ["prompt"],
};

/** @param {import("./engine.js").Engine} engine */
export function offerModel(engine) {
  const context = /** @type {any} */ (document).modelContext;
  if (typeof context?.registerTool !== "function") return;
  const execute = async (
    /** @type {{ prompt: string }} */ { prompt },
    /** @type {{ signal?: AbortSignal }} */ options = {},
  ) => {
    const wisp = await engine.ready();
    const { loaded } = engine;
    if (!loaded || loaded.choice.upstream) throw new Error("The page has no model of this computer loaded.");
    const answer = await wisp.chat.completions.create(
      {
        model: /** @type {string} */ (loaded.stats.model),
        messages: [{ role: "user", content: `${prompt}` }],
        prompt_cache_retention: "in_memory",
      },
      { signal: options.signal },
    );
    return answer.choices[0].message.content;
  };
  const tool = { name: "ask_model", description: DESCRIPTION, inputSchema: INPUT, execute };
  Promise.resolve(context.registerTool(tool)).catch((error) => console.warn("WebMCP:", error));
}
