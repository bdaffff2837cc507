/** Lists what is in the browser's storage, with sizes and a button to remove each: the models and the prompt cache. */
import { byId, h, iconButton } from "./dom.js";
import { bytes } from "./format.js";

/**
 * @typedef {import("../sdk/types.d.ts").CachedModel} CachedModel
 * @typedef {{ bytes: number, limit: number }} Usage
 * @typedef {object} Actions
 * @property {() => Promise<CachedModel[]>} cached
 * @property {(url: string) => Promise<unknown>} remove
 * @property {() => Promise<Usage | null>} prompts
 * @property {() => Promise<unknown>} clearPrompts
 *
 * @param {Actions} actions
 */
export function startCached({ cached, remove, prompts, clearPrompts }) {
  const list = byId("cached-list");
  const show = async () => {
    const models = (await cached().catch(() => [])).filter((model) => model.bytes > 0);
    const usage = await prompts().catch(() => null);
    const items = [...models.map(item), ...(usage?.bytes ? [promptCache(usage)] : [])];
    list.replaceChildren(...items);
    byId("cached").hidden = items.length === 0;
  };
  /** @param {Usage} usage */
  const promptCache = (usage) => {
    const title = "What was computed for your chats, so that they continue at once after a reload";
    const away = iconButton("trash", "Clear the prompt cache", () => clearPrompts().finally(show));
    const about = `${bytes(usage.bytes)} of at most ${bytes(usage.limit)}`;
    return h("li", { title }, h("span", {}, "Prompt cache"), h("small", {}, about), away);
  };
  /** @param {CachedModel} model */
  const item = (model) => {
    const { id, url, size, bytes: stored, complete, verified, last_used, loaded } = model;
    const about = [
      complete ? bytes(stored) : `${bytes(stored)} of ${bytes(size)}`,
      verified ? "verified" : "not verified",
      loaded ? "in use" : last_used && `used ${new Date(1000 * last_used).toLocaleDateString()}`,
    ].filter(Boolean);
    const away = iconButton("trash", `Remove ${id} from this browser`, () => remove(url).finally(show));
    return h("li", {}, h("span", {}, id), h("small", {}, about.join(" · ")), away);
  };
  byId("model-button").addEventListener("click", show);
}
