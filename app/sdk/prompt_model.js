/** What can be known of the Prompt API's model before it is loaded. */

/**
 * @typedef {import("../wisp.js").Wisp} Wisp
 * @typedef {import("../wisp.js").LoadRequest} LoadRequest
 */

/** The model's entry in the list of models, if it has one. @param {Wisp} engine @param {LoadRequest} request */
async function entryOf(engine, { model, name }) {
  const { data } = await engine.models.list();
  return data.find((/** @type {any} */ one) => {
    if (name !== undefined) return one.id === name;
    return model === undefined ? one.default : one.id === model || one.url === model;
  });
}

/** Where the request's projector is; a model of the catalog may have its own. @param {LoadRequest} request @param {any} entry */
function projectorOf({ model, projector }, entry) {
  return projector ?? (model === undefined || entry?.id === model ? entry?.projector : undefined);
}

/** Whether a model is loaded or stored whole, its projector included. @param {Wisp} engine @param {LoadRequest} request */
export async function present(engine, request) {
  const { model } = request;
  const entry = await entryOf(engine, request);
  if (entry?.loaded) return true;
  const parts = [entry?.url ?? model, projectorOf(request, entry)].flat().filter((part) => part !== undefined);
  const cached = await engine.models.cached();
  return parts.every((part) => {
    if (typeof part !== "string") return true; // a file
    const address = new URL(part, location.href).href;
    return cached.some(({ url, complete }) => url === address && complete);
  });
}

/**
 * Whether a model may take all these kinds of media. A projector that is not loaded yet may lack one.
 * @param {Wisp} engine @param {LoadRequest} request @param {import("./prompt_options.js").Kind[]} kinds
 */
export async function mayTake(engine, request, kinds) {
  if (!kinds.length) return true;
  const entry = await entryOf(engine, request);
  const { media, projector } = entry?.loaded ? await engine.stats({ model: entry.id }) : {};
  if (projector) return kinds.every((kind) => media?.[kind]);
  return projectorOf(request, entry) !== undefined;
}
