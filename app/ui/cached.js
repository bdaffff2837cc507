/** Lists the models in the browser's storage, with their sizes and a button to remove each. */
import { byId, h, iconButton } from "./dom.js";
import { bytes } from "./format.js";

/**
 * @typedef {import("../sdk/types.d.ts").CachedModel} CachedModel
 * @param {{ cached: () => Promise<CachedModel[]>, remove: (url: string) => Promise<unknown> }} actions
 */
export function startCached({ cached, remove }) {
  const list = byId("cached-list");
  const show = async () => {
    const models = (await cached().catch(() => [])).filter((model) => model.bytes > 0);
    list.replaceChildren(...models.map(item));
    byId("cached").hidden = models.length === 0;
  };
  /** @param {CachedModel} model */
  const item = (model) => {
    const { id, url, size, bytes: stored, complete, last_used, loaded } = model;
    const about = [
      complete ? bytes(stored) : `${bytes(stored)} of ${bytes(size)}`,
      loaded ? "in use" : last_used && `used ${new Date(1000 * last_used).toLocaleDateString()}`,
    ].filter(Boolean);
    const away = iconButton("trash", `Remove ${id} from this browser`, () => remove(url).finally(show));
    return h("li", {}, h("span", {}, id), h("small", {}, about.join(" · ")), away);
  };
  byId("model-button").addEventListener("click", show);
}
