/** The hub dialog: search repositories, see the files of one, load the file that suits this device. Asks the hub only while it is open. */
import { Hub } from "../hub/client.js";
import { HUB } from "../hub/settings.js";
import { bytesAt4Bits, CURATED } from "../hub/curated.js";
import { joined, number, t } from "../language/phrase.js";
import { explain } from "./advice.js";
import { byId, h } from "./dom.js";
import { bytes } from "./format.js";
import { Repository } from "./hub_files.js";
import { say, show as put } from "./texts.js";
import { VirtualRows } from "./virtual_rows.js";

/**
 * @typedef {import("../hub/client.js").Repository} Found
 * @typedef {import("./hub_files.js").Actions} Actions
 */

const ROW = 68; // pixels
const TYPING_MS = 250; // after the last key, before a search

/** Parameters of each size that can be chosen. @type {Record<string, { minParameters?: number, maxParameters?: number }>} */
const SIZES = {
  "": {},
  tiny: { maxParameters: 1_000_000_000 },
  small: { minParameters: 1_000_000_000, maxParameters: 4_000_000_000 },
  medium: { minParameters: 4_000_000_000, maxParameters: 9_000_000_000 },
  large: { minParameters: 9_000_000_000 },
};

/** @param {Actions} actions */
export function startHub(actions) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("hub-dialog"));
  const form = /** @type {HTMLFormElement} */ (byId("hub-form"));
  const status = byId("hub-status");
  const close = () => dialog.close();
  const repository = new Repository(actions, { close, failed: showSettings });
  let asking = new AbortController(); // of the newest search
  /** @type {string | null} */
  let next = null;
  let searched = false;

  const rows = /** @type {VirtualRows<Found>} */ (
    new VirtualRows(byId("hub-results"), { rowHeight: ROW, render: resultOf, onEnd: () => void more() })
  );

  /** @param {Found} found */
  function resultOf(found) {
    const about = [
      found.parameters && parametersOf(found.parameters),
      found.license,
      found.task,
      t("{count} downloads", { n: found.downloads, count: count(found.downloads) }),
      t("{count} likes", { n: found.likes, count: count(found.likes) }),
      found.gated && t("needs a token"),
    ];
    const [owner, name] = found.id.split("/");
    return h(
      "button",
      { type: "button", class: "hub-row", on: { click: () => void open(found.id) } },
      h("strong", { dir: "ltr" }, h("bdi", {}, name ?? owner), name && " ", name && h("bdi", {}, owner)),
      h("small", {}, joined(about)),
    );
  }

  async function search() {
    asking.abort();
    asking = new AbortController();
    const { signal } = asking;
    searched = true;
    next = null;
    say(status, t("Searching …"));
    try {
      const hub = await Hub.open();
      const data = Object.fromEntries(/** @type {any} */ (new FormData(form)));
      const { search, sort, task, license, size } = data;
      const page = await hub.search({ search: search.trim(), sort, task, license, ...SIZES[size] }, { signal });
      if (signal.aborted) return;
      next = page.next;
      rows.show(page.models);
      say(status, page.models.length ? "" : t("Nothing found. Try fewer words or other filters."));
    } catch (error) {
      if (signal.aborted) return;
      rows.show([]);
      say(status, explain(error).message);
      showSettings(error);
    }
  }

  async function more() {
    const { signal } = asking;
    const query = next;
    next = null; // one request at a time
    if (query === null) return;
    try {
      const page = await (await Hub.open()).more(query, { signal });
      if (signal.aborted) return;
      next = page.next;
      rows.add(page.models);
    } catch (error) {
      if (!signal.aborted) say(status, explain(error).message);
    }
  }

  /** Opens a repository. @param {string} id */
  async function open(id) {
    if (!dialog.open) dialog.showModal();
    show("repository");
    await repository.open(id);
  }

  /** @param {"search" | "repository"} view */
  function show(view) {
    byId("hub-search").hidden = view !== "search";
    byId("hub-repository").hidden = view !== "repository";
    if (view === "search") repository.leave();
  }

  /** Opens the settings where a token or another address may help. @param {unknown} error */
  function showSettings(error) {
    const { code } = explain(error);
    if (code === "http_error" || code === "network_error")
      /** @type {HTMLDetailsElement} */ (byId("hub-settings")).open = true;
  }

  let typing = 0;
  form.addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(() => void search(), event.target === byId("hub-query") ? TYPING_MS : 0);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(typing);
    void search();
  });
  byId("hub-open").onclick = () => {
    dialog.showModal();
    show("search");
    byId("hub-query").focus();
    if (!searched || !rows.length) void search();
  };
  byId("hub-back").onclick = () => {
    show("search");
    byId("hub-query").focus();
    if (!searched) void search();
  };
  dialog.addEventListener("close", () => {
    asking.abort();
    repository.leave();
  });
  startSettings(() => (byId("hub-repository").hidden ? void search() : void repository.again()));

  byId("curated-list").replaceChildren(
    ...CURATED.map(({ name, repository: id, parameters, license, kind, about }) => {
      const size = t("about {size}", { size: bytes(bytesAt4Bits(parameters)) });
      const facts = joined([kind, parametersOf(parameters), size, license]);
      const click = () => void open(id);
      return h(
        "li",
        {},
        h(
          "button",
          { type: "button", class: "model", on: { click } },
          h("strong", {}, name),
          h("span", {}, about),
          h("small", {}, facts),
        ),
      );
    }),
  );

  return { open };
}

/** @param {() => void} changed */
function startSettings(changed) {
  const form = /** @type {HTMLFormElement} */ (byId("hub-settings-form"));
  const details = /** @type {HTMLDetailsElement} */ (byId("hub-settings"));
  const field = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
  const error = byId("hub-settings-error");
  let typed = false; // an address that is not saved yet, which nothing may replace
  field("baseURL").addEventListener("input", () => (typed = true));
  details.addEventListener("toggle", async () => {
    const hub = await Hub.open();
    if (!typed) field("baseURL").value = hub.baseURL === HUB ? "" : hub.baseURL;
    put(field("token"), "placeholder", hub.hasToken ? t("stored; enter another to replace it") : t("none"));
    byId("hub-forget").hidden = !hub.hasToken;
  });
  byId("hub-dialog").addEventListener("close", () => {
    form.reset(); // what is not saved is not in use, and a token must not stay in the page
    typed = false;
    details.open = false;
  });
  const change = async (/** @type {{ baseURL?: string, token?: string }} */ changes) => {
    error.hidden = true;
    try {
      await Hub.configure(changes);
    } catch (failure) {
      say(error, explain(failure).message);
      error.hidden = false;
      return;
    }
    field("token").value = "";
    if ("baseURL" in changes) typed = false;
    details.open = false;
    changed();
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const token = field("token").value.trim();
    void change({ baseURL: field("baseURL").value.trim(), ...(token ? { token } : {}) });
  });
  byId("hub-forget").onclick = () => void change({ token: "" });
}

/** @param {number} parameters */
const parametersOf = (parameters) =>
  parameters >= 999.5e6
    ? t("{count} B parameters", { count: number(parameters / 1e9, digits(parameters < 9.95e9 ? 1 : 0)) })
    : t("{count} M parameters", { count: Math.round(parameters / 1e6) });

/** @param {number} digits after the point */
const digits = (digits) => ({ minimumFractionDigits: digits, maximumFractionDigits: digits });

/** @param {number} value */
const count = (value) => number(value, { notation: "compact" });
