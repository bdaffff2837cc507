/** Lists what is in the browser's storage, with sizes and a button to remove each: the models and the prompt cache. */
import { joined, t } from "../language/phrase.js";
import { makeSpaceBy } from "../storage/space.js";
import { byId, h, iconButton } from "./dom.js";
import { bytes, day } from "./format.js";
import { LongList } from "./long_list.js";
import { announce, notify } from "./notices.js";

/** Whether the browser has promised to keep what is stored. */
const isPersistent = async () => (await navigator.storage?.persisted?.().catch(() => false)) ?? false;

/**
 * @typedef {import("../sdk/types.d.ts").CachedModel} CachedModel
 * @typedef {import("./texts.js").Text} Text
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
  const list = new LongList(byId("cached-list"));
  const show = async () => {
    const models = (await cached().catch(() => [])).filter((model) => model.bytes > 0);
    const usage = await prompts().catch(() => null);
    const items = models.map((model) => ({ key: model.url, state: model, draw: () => item(model) }));
    const computed = usage?.bytes ? [{ key: "", state: usage, draw: () => promptCache(usage) }] : [];
    byId("cached").hidden = items.length + computed.length === 0;
    list.show([...items, ...computed]);
    byId("cached-passing").hidden = await isPersistent();
  };
  makeSpaceBy(async () => {
    const usage = await prompts();
    if (usage?.bytes) await clearPrompts();
    return Boolean(usage?.bytes);
  });
  /** Does what a button is for, says how it ended, and shows what is stored then. @param {Promise<unknown>} work @param {Text} [done] */
  const act = async (work, done) => {
    try {
      await work;
      if (done) announce(done);
    } catch (/** @type {any} */ error) {
      notify({ key: "cached", text: t("This failed."), more: error.message, kind: "error" });
    }
    await show();
  };
  /** @param {Usage} usage */
  const promptCache = (usage) => {
    const title = t("What was computed for your chats, so that they continue at once after a reload");
    const away = iconButton("trash", t("Clear the prompt cache"), () =>
      act(clearPrompts(), t("The prompt cache is empty.")),
    );
    const about = t("{size} of at most {limit}", { size: bytes(usage.bytes), limit: bytes(usage.limit) });
    return h("li", { title }, h("span", {}, t("Prompt cache")), h("small", {}, about), away);
  };
  /** @param {CachedModel} model */
  const item = (model) => {
    const { id, url, size, bytes: stored, complete, verified, pinned, last_used, loaded } = model;
    const about = [
      complete ? bytes(stored) : t("{part} of {whole}", { part: bytes(stored), whole: bytes(size) }),
      verified ? t("verified") : t("not verified"),
      pinned && t("pinned"),
      loaded ? t("in use") : last_used ? t("used {day}", { day: day(1000 * last_used) }) : null,
    ];
    const away = iconButton("trash", t("Remove {name} from this browser", { name: id }), () =>
      act(remove(url), t("{name} is deleted.", { name: id })),
    );
    const keep = iconButton(
      "pin",
      pinned
        ? t("Let {name} be removed when space is needed", { name: id })
        : t("Pin {name}: never remove it to make space", { name: id }),
      () => act(pin(url, !pinned)),
    );
    keep.setAttribute("aria-pressed", String(pinned));
    const buttons = h("div", { class: "cached-actions" }, keep, away);
    return h("li", {}, h("span", {}, id), h("small", {}, joined(about)), buttons);
  };
  byId("model-button").addEventListener("click", show);
}
