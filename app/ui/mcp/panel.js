/** The sheet of MCP servers: add, change, connect, turn off, remove; what they offer, and the calls that went to them. */
import { t } from "../../language/phrase.js";
import { byId, h, iconButton } from "../dom.js";
import { clock } from "../format.js";
import { announce, notify } from "../notices.js";
import { show } from "../texts.js";
import { offersList } from "./offers.js";
import { askUser } from "./question.js";
import { McpServers } from "./servers.js";
import { ToolList } from "./tool_list.js";

/** @typedef {import("./servers.js").Entry} Entry */

/**
 * @param {{ wisp: () => Promise<import("../../wisp.js").Wisp>, called: (name: string) => void,
 *   changed?: (servers: McpServers) => void, uses: import("./offers.js").Uses }} parts `changed`: its `sources` may have
 *   changed; `uses`: of what servers offer
 * @returns {McpServers}
 */
export function startMcp({ wisp, called, changed: onChange, uses }) {
  const dialog = /** @type {HTMLDialogElement} */ (byId("mcp-dialog"));
  const form = /** @type {HTMLFormElement} */ (byId("mcp-form"));
  const problem = byId("mcp-error");
  const add = byId("mcp-add");
  const input = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (form.elements.namedItem(name));
  const draw = async () => {
    if (!dialog.open) return;
    const entries = await servers.list();
    const list = byId("mcp-list");
    for (const entry of entries) toolsOf(entry).draw();
    const unfolded = [...list.querySelectorAll("details[open]")].map(({ id }) => id);
    const focused = /** @type {HTMLElement | null} */ (list.querySelector(":focus"));
    const places = [...list.querySelectorAll("ul")].map((kept) => ({ kept, top: kept.scrollTop }));
    const items = entries.map(item); // moves the lists, so they lose the focus and where they were scrolled to
    list.replaceChildren(...items);
    for (const { kept, top } of places) kept.scrollTop = top;
    for (const id of unfolded) document.getElementById(id)?.toggleAttribute("open", true);
    focused?.focus({ preventScroll: true }); // a switch, or a field of an offer, which the list has again
  };
  const changedNow = () => {
    onChange?.(servers);
    void draw();
  };
  const servers = new McpServers({ wisp, ask: askUser, changed: changedNow, called });
  void servers.list();
  let leaving = new AbortController(); // of a connection for which the user waits
  /** @type {WeakMap<Entry, HTMLElement>} what each server offers: it stays when the list is drawn again */
  const offers = new WeakMap();
  /** @type {WeakMap<Entry, ToolList>} each server's tools: they stay likewise */
  const toolLists = new WeakMap();
  const toolsOf = (/** @type {Entry} */ entry) => {
    const listed = toolLists.get(entry) ?? new ToolList(entry, servers);
    toolLists.set(entry, listed);
    return listed;
  };
  /** @type {Entry | null} the one that the form changes */
  let changed = null;
  let shown = {}; // what the form is for: an answer for what it was for earlier changes nothing in it
  byId("mcp-origin").textContent = location.origin;

  const reset = () => {
    shown = {};
    form.reset(); // the token must not stay in the page
    form.inert = false;
  };
  const open = (/** @type {Entry | null} */ entry) => {
    changed = entry;
    reset();
    problem.hidden = true;
    input("name").value = entry?.name ?? "";
    input("url").value = entry?.url ?? "";
    show(input("secret"), "placeholder", entry?.secret ? t("{key} stays", { key: masked(entry.secret) }) : t("none"));
    form.hidden = false;
    add.hidden = true;
    input("name").focus();
    form.scrollIntoView({ block: "nearest" });
  };
  const close = () => {
    reset();
    form.hidden = true;
    add.hidden = false;
  };

  byId("mcp-button").onclick = () => {
    dialog.showModal();
    void draw();
  };
  add.onclick = () => open(null);
  byId("mcp-cancel").onclick = () => {
    close();
    add.focus();
  };
  dialog.addEventListener("close", () => {
    leaving.abort();
    leaving = new AbortController();
    close();
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const [name, url, secret] = ["name", "url", "secret"].map((field) => input(field).value.trim());
    for (const field of ["name", "url", "secret"]) input(field).removeAttribute("aria-invalid");
    form.inert = true;
    const mine = shown;
    try {
      await servers.set({ name, url, secret, old: changed?.name }, leaving.signal);
      if (mine !== shown) return;
      close();
      add.focus();
    } catch (/** @type {any} */ error) {
      const all = await servers.list().catch(() => []);
      if (mine !== shown) return;
      changed = all.find((entry) => entry.name === name && entry.url === url) ?? changed;
      problem.textContent = error.message;
      problem.hidden = false;
      form.inert = false;
      const field = input(error.param ?? "url");
      field.setAttribute("aria-invalid", "true");
      field.focus();
    }
  });

  /** @param {Entry} entry */
  const item = (entry) => {
    const { name, url, relayed, tools, on } = entry;
    const again = async () => {
      offers.delete(entry);
      const { tools } = await servers.open(entry, leaving.signal).catch(() => ({ tools: [] }));
      announce(entry.error ?? t("{name} has {n} tools.", { name, n: tools.length }));
    };
    const remove = async () => {
      await servers.remove(entry);
      add.focus();
      notify({ key: "mcp", text: t("{name} is removed, and its token forgotten.", { name }), seconds: 6 });
    };
    const use = h("input", {
      type: "checkbox",
      checked: on,
      on: { change: () => void servers.turn(entry, use.checked) },
    });
    const where = relayed ? t("relayed by the terminal") : url;
    const offered = offers.get(entry) ?? offersList(servers.server(entry), uses);
    offers.set(entry, offered);
    return h(
      "li",
      { class: "upstream" },
      h(
        "div",
        { class: "upstream-head" },
        h("div", {}, h("strong", {}, name), h("small", {}, where)),
        iconButton("again", t("Connect to {name} again", { name }), () => void again()),
        !relayed && iconButton("edit", t("Change {name}", { name }), () => open(entry)),
        !relayed && iconButton("trash", t("Remove {name}", { name }), () => void remove()),
      ),
      h("label", { class: "check" }, use, h("span", {}, t("Models may call its tools"))),
      entry.error ? h("p", { class: "form-error" }, entry.error) : null,
      log(entry),
      tools.length > 0 && toolsOf(entry).element,
      offered,
    );
  };
  return servers;
}

/** The calls of this visit. @param {Entry} entry */
function log({ name, calls }) {
  const last = calls.at(-1);
  if (!last) return null;
  const items = calls.map(({ time, tool, given, failed }) =>
    h(
      "li",
      {},
      clock(time),
      " ",
      h("code", {}, `${tool} ${JSON.stringify(given)}`),
      failed && h("small", {}, ` ${failed}`),
    ),
  );
  const went = t("{n} calls went there, the last at {time}.", { n: calls.length, time: clock(last.time) });
  const list = h("ul", { "aria-label": went, tabIndex: 0 }, ...items);
  return h("details", { class: "mcp-tools", id: `mcp-calls-${name}` }, h("summary", {}, went), list);
}

/** The end of a secret, if it is long enough that this does not tell it. @param {string} secret */
const masked = (secret) => (secret.length < 12 ? "…" : `…${secret.slice(-4)}`);
