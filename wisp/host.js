/** The JavaScript of the Python package: what the engine's Python calls, in a worker or on a page's main thread. */
import { provide } from "../app/engine_globals.js";
import { samplesOf } from "../app/sdk/sound.js";

/** @param {import("../app/engine_globals.js").EngineAssets} assets */
export const start = (assets) => provide(assets, async () => {}, { wispDecodeSound: samplesOf }); // the package depends on numpy
