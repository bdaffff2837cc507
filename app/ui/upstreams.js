/** Lists and edits the user's upstreams, and counts the requests that left this machine. */
import { listed, t } from "../language/phrase.js";
import { byId, h, iconButton } from "./dom.js";
import { clock } from "./format.js";
import { icon } from "./icons.js";
import { LongList } from "./long_list.js";
import { announce, notify } from "./notices.js";
import { say, show } from "./texts.js";

/**
 * @typedef {import("../wisp.js").Wisp} Wisp
 * @typedef {import("../wisp.js").Upstream} Upstream
 * @typedef {import("./engine.js").Choice} Choice
 * @typedef {import("./engine.js").Loaded} Loaded
 */

const SEARCH_FROM = 8; // models; a longer list gets a search field

/** @param {{ wisp: () => Promise<Wisp>, removed: (name: string) => void }} parts */
export function startUpstreams({ wisp, removed }) {
  const form = /** @type {HTMLFormElement} */ (byId("upstream-form"));
  const error = byId("upstream-error");
  const add = byId("upstream-add");
  const input = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
  /** @type {Loaded | null} */
  let loaded = null;
  let take = (/** @type {Choice} */ _) => {};
  let shown = {}; // what the form is for: an answer for what it was for earlier changes nothing in it
  byId("page-origin").textContent = location.origin;

  const draw = async () => {
    const { data } = await (await wisp()).upstreams.list();
    byId("upstream-list").replaceChildren(...data.map(item));
  };
  const reset = () => {
    shown = {};
    form.reset(); // the key must not stay in the page
    form.inert = false;
  };
  const open = (/** @type {Upstream | null} */ upstream) => {
    reset();
    error.hidden = true;
    input("name").value = upstream?.name ?? "";
    input("name").readOnly = upstream !== null;
    input("baseURL").value = upstream?.base_url ?? "";
    show(input("apiKey"), "placeholder", upstream?.key ? t("{key} stays", { key: upstream.key }) : t("none"));
    form.hidden = false;
    add.hidden = true;
    input(upstream ? "baseURL" : "name").focus();
    form.scrollIntoView({ block: "nearest" });
  };
  const close = () => {
    reset();
    form.hidden = true;
    add.hidden = false;
  };
  add.onclick = () => open(null);
  byId("upstream-cancel").onclick = () => {
    close();
    add.focus();
  };
  byId("model-dialog").addEventListener("close", close);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const [name, baseURL, apiKey] = ["name", "baseURL", "apiKey"].map((field) => input(field).value.trim());
    for (const field of ["name", "baseURL", "apiKey"]) input(field).removeAttribute("aria-invalid");
    form.inert = true;
    const mine = shown;
    try {
      const saved = await (await wisp()).upstreams.set({ name, baseURL, ...(apiKey ? { apiKey } : {}) });
      if (mine === shown) {
        close();
        add.focus();
      }
      announce(saved.error ?? t("{name} has {n} models.", { name, n: saved.models.length }));
      void draw();
    } catch (/** @type {any} */ failure) {
      if (mine !== shown) return;
      form.inert = false;
      error.textContent = failure.message;
      error.hidden = false;
      if (failure.param) {
        input(failure.param)?.setAttribute("aria-invalid", "true");
        input(failure.param)?.focus();
      }
    }
  });

  /** @param {Upstream} upstream */
  const item = (upstream) => {
    const { name, base_url, models } = upstream;
    const again = async () => {
      await (await wisp()).upstreams.refresh(name).catch(() => {});
      await draw();
    };
    const remove = async () => {
      await (await wisp()).upstreams.remove(name);
      removed(name);
      await draw();
      add.focus();
      notify({ key: "upstream", text: t("{name} is removed, and its key forgotten.", { name }), seconds: 6 });
    };
    const head = h(
      "div",
      { class: "upstream-head" },
      h("div", {}, h("strong", {}, name), h("small", {}, base_url)),
      iconButton("again", t("Ask {name} for its models again", { name }), again),
      iconButton("edit", t("Change {name}", { name }), () => open(upstream)),
      iconButton("trash", t("Remove {name}", { name }), remove),
    );
    return h(
      "li",
      { class: "upstream" },
      head,
      h("p", { class: "badge away" }, icon("away"), t("leaves this computer: goes to {name}", { name })),
      upstream.error ? h("p", { class: "form-error" }, upstream.error) : null,
      sent(upstream),
      choices(models, name),
    );
  };

  /** @param {string[]} models as requests name them @param {string} upstream */
  const choices = (models, upstream) => {
    const current = loaded?.choice.upstream ? loaded.choice.model : null;
    const item = (/** @type {string} */ model) => {
      const name = model.slice(upstream.length + 1);
      const click = () => take({ model, name, keep: model, upstream });
      const props = { type: "button", class: model === current ? "model current" : "model", on: { click } };
      return h("li", {}, h("button", { ...props, "aria-current": model === current ? "true" : null }, name));
    };
    const list = h("ul", { class: "upstream-models", "aria-label": t("Models of {name}", { name: upstream }) });
    const rows = new LongList(list, list);
    const show = (/** @type {string[]} */ found) =>
      rows.show(found.map((model) => ({ key: model, draw: () => item(model) })));
    show(models);
    if (models.length <= SEARCH_FROM) return list;
    const search = h("input", {
      type: "search",
      placeholder: t("Search"),
      "aria-label": t("Search the models of {name}", { name: upstream }),
    });
    search.addEventListener("input", () => {
      const words = search.value.toLowerCase().split(/\s+/);
      show(models.filter((model) => words.every((word) => model.toLowerCase().includes(word))));
    });
    return h("div", {}, search, list);
  };

  /** @type {Map<string, number>} name -> requests since the page was opened */
  const counts = new Map();
  return {
    /** Draws the servers. @param {Loaded | null} now the current model @param {(choice: Choice) => void} choose */
    async show(now, choose) {
      loaded = now;
      take = choose;
      await draw().catch(() => {}); // an engine that does not start is reported elsewhere
    },
    /** A request left this machine, from this page or through its API. @param {string} text "NAME: PATH" */
    left(text) {
      const name = text.split(":")[0];
      counts.set(name, (counts.get(name) ?? 0) + 1);
      const all = [...counts].map(([server, n]) => t("{n} requests for {server}", { n, server }));
      const requests = listed(all);
      say(byId("privacy"), t("Runs in this tab. Since it was opened, {requests} left this computer.", { requests }));
      byId("privacy").classList.add("left");
    },
  };
}

/** @param {Upstream} upstream */
function sent({ requests, last_request }) {
  if (!requests || !last_request) return null;
  const time = clock(last_request * 1000);
  return h("p", { class: "note" }, t("{n} requests went there, the last at {time}.", { n: requests, time }));
}
