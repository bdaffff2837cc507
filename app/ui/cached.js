/** Lists what is in the browser's storage, with sizes and a button to remove each: the models and the prompt cache. */
import { byId, h, iconButton } from "./dom.js";
import { bytes } from "./format.js";

/**
 * @typedef {import("../sdk/types.d.ts").CachedModel} CachedModel
 * @typedef {{ bytes: number, limit: number }} Usage
 * @typedef {object} Actions
 * @property {() => Promise<CachedModel[]>} cached
 * @property {(url: string) => Promise<unknown>} remove
 * @property {(url: string, pinned: boolean) => Promise<unknown>} pin
 * @property {() => Promise<Usage | null>} prompts
 * @property {() => Promise<unknown>} clearPrompts
 *
 * @param {Actions} actions
 */
export function startCached({ cached, remove, pin, prompts, clearPrompts }) {
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
    const { id, url, size, bytes: stored, complete, verified, pinned, last_used, loaded } = model;
    const about = [
      complete ? bytes(stored) : `${bytes(stored)} of ${bytes(size)}`,
      verified ? "verified" : "not verified",
      pinned && "pinned",
      loaded ? "in use" : last_used && `used ${new Date(1000 * last_used).toLocaleDateString()}`,
    ].filter(Boolean);
    const away = iconButton("trash", `Remove ${id} from this browser`, () => remove(url).finally(show));
    const keep = iconButton(
      "pin",
      pinned ? `Let ${id} be removed when space is needed` : `Pin ${id}: never remove it to make space`,
      async () => {
        await pin(url, !pinned).finally(show);
        /** @type {HTMLElement | null} */ (list.querySelector(`[data-url="${CSS.escape(url)}"] button`))?.focus();
      },
    );
    keep.setAttribute("aria-pressed", String(pinned));
    const buttons = h("div", { class: "cached-actions" }, keep, away);
    return h("li", { "data-url": url }, h("span", {}, id), h("small", {}, about.join(" · ")), buttons);
  };
  byId("model-button").addEventListener("click", show);
}
