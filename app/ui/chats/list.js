/** The list of chats in the sidebar: pinned, in folders, then by age; or what a search finds. */
import { t } from "../../language/phrase.js";
import { isText, storedList } from "../../storage/local_json.js";
import { byId, h, iconButton } from "../dom.js";
import { announce, notify } from "../notices.js";
import { isKey } from "../shortcuts.js";
import { say, show } from "../texts.js";
import { VirtualList } from "../virtual.js";
import { readMessages } from "./database.js";
import { addressOf } from "./addresses.js";
import { openMenu } from "./menu.js";
import { excerptOf } from "./search/excerpt.js";
import { Search } from "./search/client.js";

/**
 * @typedef {import("./database.js").ChatInfo} ChatInfo
 * @typedef {import("../virtual.js").Row} Row
 *
 * @typedef {object} Actions
 * @property {(id: string, sought?: string) => void} open `sought`: the words that a search found in it
 * @property {(id: string, change: Partial<ChatInfo>) => void} change
 * @property {(id: string) => void} remove
 * @property {(id: string, form: "json" | "markdown") => void} save as a file
 */

const HEIGHTS = { head: 36, chat: 38, found: 60 }; // px
const CLOSED = "wisp.folders"; // the closed ones

/** @param {Actions} actions */
export function startChatList(actions) {
  const field = /** @type {HTMLInputElement} */ (byId("chat-search"));
  const view = new VirtualList(byId("chat-list"), byId("chat-rows"));
  const search = new Search(({ done, total }) =>
    say(byId("chat-found"), t("Reading chats: {done} of {total}", { done, total })),
  );
  /** @type {ChatInfo[]} */
  let chats = [];
  let current = "";
  /** @type {string[] | null} ids that the search found; null: there is none */
  let found = null;
  let searched = ""; // what of the chats the search's result depends on
  /** @type {{ id: string, what: "title" | "folder" } | null} the row that is edited */
  let edited = null;

  const draw = () => {
    const rows = found ? foundRows(found) : groupRows();
    byId("chat-found").hidden = found === null;
    view.show(rows);
  };

  /** @param {string[]} ids @returns {Row[]} */
  const foundRows = (ids) => {
    const wanted = new Set(ids);
    return chats.filter(({ id }) => wanted.has(id)).map((info) => chatRow(info, field.value));
  };

  /** @returns {Row[]} */
  const groupRows = () => {
    const closed = storedList(CLOSED, isText);
    const midnight = new Date().setHours(0, 0, 0, 0);
    const groups = Map.groupBy(chats, (info) => groupOf(info, midnight));
    const folders = [...groups.keys()].filter((name) => name.startsWith("/")).sort((a, b) => a.localeCompare(b));
    return [PINNED, ...folders, ...AGES.keys()].flatMap((name) => {
      const members = groups.get(name) ?? [];
      if (!members.length) return [];
      const isClosed = closed.includes(name);
      return [headRow(name, members.length, isClosed), ...(isClosed ? [] : members.map((info) => chatRow(info)))];
    });
  };

  /** @param {string} name @param {number} count @param {boolean} isClosed @returns {Row} */
  const headRow = (name, count, isClosed) => ({
    key: `head ${name}`,
    height: HEIGHTS.head,
    state: [count, isClosed],
    draw() {
      if (!name.startsWith("/"))
        return h("li", { class: "chat-head" }, h("h2", {}, name === PINNED ? t("Pinned") : AGES.get(name)));
      const toggle = () => {
        const closed = storedList(CLOSED, isText);
        const changed = isClosed ? closed.filter((other) => other !== name) : [...closed, name];
        localStorage.setItem(CLOSED, JSON.stringify(changed));
        draw();
      };
      const label = `${name.slice(1)} (${count})`;
      const button = h(
        "button",
        { type: "button", class: "chat-folder", icon: "folder", on: { click: toggle } },
        label,
      );
      button.ariaExpanded = String(!isClosed);
      return h("li", { class: "chat-head" }, h("h2", {}, button));
    },
  });

  /** @param {ChatInfo} info @param {string} [sought] @returns {Row} */
  const chatRow = (info, sought) => {
    const { id, title, pinned, folder, updated } = info;
    const what = edited?.id === id ? edited.what : null;
    return {
      key: id,
      height: sought ? HEIGHTS.found : HEIGHTS.chat,
      // A field that is written in stays as it is, whatever changes of its chat meanwhile.
      state: what ? [what] : [title, id === current, pinned, folder, sought, sought && updated],
      draw: () => (what ? editedItem(info, what) : item(info, sought)),
    };
  };

  /** @param {ChatInfo} info @param {string} [sought] */
  const item = (info, sought) => {
    const { id, title, pinned } = info;
    const isCurrent = id === current;
    const excerpt = sought ? h("small", { dir: "auto" }) : null;
    if (excerpt && sought) {
      readMessages(id).then(
        (messages) => excerpt.replaceChildren(...excerptOf(messages, sought)),
        () => {},
      );
    }
    const click = (/** @type {MouseEvent} */ event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return; // the browser opens it elsewhere
      event.preventDefault();
      actions.open(id, sought);
    };
    const open = h(
      "a",
      {
        href: addressOf(id),
        class: "chat-open",
        title,
        "aria-current": isCurrent ? "page" : null,
        on: { click },
      },
      h("span", { dir: "auto" }, title),
      excerpt,
    );
    const edit = (/** @type {"title" | "folder"} */ what) => {
      edited = { id, what };
      draw();
      byId("chat-rows").querySelector("input")?.select();
    };
    const more = iconButton("more", t("More for “{title}”", { title }), () =>
      openMenu(more, [
        { label: t("Rename"), icon: "edit", run: () => edit("title") },
        {
          label: pinned ? t("Unpin") : t("Pin"),
          icon: "pin",
          run: () => actions.change(id, { pinned: pinned ? undefined : true }),
        },
        { label: t("Move to a folder"), icon: "folder", run: () => edit("folder") },
        { label: t("Save as Markdown"), icon: "file", run: () => actions.save(id, "markdown") },
        { label: t("Save as JSON"), icon: "file", run: () => actions.save(id, "json") },
        { label: t("Delete"), icon: "trash", run: () => actions.remove(id) },
      ]),
    );
    more.setAttribute("aria-haspopup", "menu");
    return h(
      "li",
      { class: isCurrent ? "chat current" : "chat" },
      open,
      iconButton("edit", t("Rename “{title}”", { title }), () => edit("title"), "icon-button only-wide"),
      iconButton("trash", t("Delete “{title}”", { title }), () => actions.remove(id), "icon-button only-wide"),
      more,
    );
  };

  /** @param {ChatInfo} info @param {"title" | "folder"} what */
  const editedItem = (info, what) => {
    const value = info[what] ?? "";
    const isTitle = what === "title";
    const label = isTitle ? t("Title of the chat") : t("Folder of the chat; empty for none");
    const input = h("input", { class: "chat-rename", value, dir: "auto", "aria-label": label, title: label });
    if (!isTitle) {
      show(input, "placeholder", t("Name of a folder"));
      input.setAttribute("list", "folders");
      const names = new Set(chats.flatMap(({ folder }) => folder ?? []));
      byId("folders").replaceChildren(...[...names].map((name) => h("option", { value: name })));
    }
    const end = (/** @type {boolean} */ done) => {
      if (edited?.id !== info.id) return;
      edited = null;
      const text = done ? input.value.trim() : value;
      if (isTitle && text && text !== value) actions.change(info.id, { title: text, titledBy: "user" });
      else if (!isTitle) actions.change(info.id, { folder: text || undefined });
      draw();
    };
    input.addEventListener("keydown", (event) => {
      if (isKey("close", event)) event.stopPropagation();
      if (isKey("send", event) || isKey("close", event)) end(isKey("send", event));
    });
    input.addEventListener("blur", () => end(true));
    return h("li", { class: "chat" }, input);
  };

  const seek = async () => {
    const text = field.value.trim();
    if (!text) {
      found = null;
      return draw();
    }
    searched = stateOf(chats);
    try {
      const ids = await search.find(text);
      if (text !== field.value.trim()) return;
      found = ids;
      draw();
      const count = foundRows(ids).length;
      const result = count ? t("{n} chats", { n: count }) : t("No chat has these words.");
      if (byId("chat-found").textContent !== `${result}`) say(byId("chat-found"), result); // else it is read out again
    } catch (error) {
      notify({ key: "search", text: t("The search failed."), more: `${error}`, kind: "error" });
    }
  };
  const prepare = () => void search.find("").catch(() => {});
  field.addEventListener("focus", prepare);
  field.addEventListener("input", seek);
  field.addEventListener("keydown", (event) => {
    if (!isKey("close", event) || !field.value) return;
    event.stopPropagation();
    field.value = "";
    seek();
    announce(t("The search is cleared."));
  });

  return {
    /** @param {ChatInfo[]} all the newest first @param {string} shown id */
    show(all, shown) {
      chats = all;
      current = shown;
      draw();
      if (field.value.trim() && stateOf(all) !== searched) void seek(); // what it finds may have changed, too
    },
    /** Reads the search index, so that the first search of the visit is quick. */
    prepareSearch: () => chats.length > 0 && prepare(),
  };
}

/** @param {ChatInfo[]} chats */
const stateOf = (chats) => chats.map(({ id, title, updated }) => `${id} ${updated} ${title}`).join("\n");

const PINNED = "pinned";
/** The groups by age, the newest first. */
const AGES = new Map([
  ["today", t("Today")],
  ["yesterday", t("Yesterday")],
  ["week", t("This week")],
  ["earlier", t("Earlier")],
]);

/** The group of a chat; "/" begins a folder's. @param {ChatInfo} info @param {number} midnight before today */
function groupOf({ pinned, folder, updated }, midnight) {
  if (pinned) return PINNED;
  if (folder) return `/${folder}`;
  const days = (midnight - updated) / 86_400_000;
  return days <= 0 ? "today" : days <= 1 ? "yesterday" : days <= 7 ? "week" : "earlier";
}
