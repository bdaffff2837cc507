/** The list of chats: a column on a wide screen, a drawer on a narrow one. */
import { byId, h, iconButton } from "./dom.js";

/** @typedef {import("./chats/store.js").Conversation} Conversation */

/** @param {{ open: (id: string) => void, rename: (id: string, title: string) => void, remove: (id: string) => void }} actions */
export function startSidebar(actions) {
  const opener = byId("open-sidebar");
  const narrow = matchMedia("(max-width: 820px)");

  const setOpen = (/** @type {boolean} */ open) => {
    document.body.classList.toggle("sidebar-open", open);
    opener.ariaExpanded = String(open);
    byId("sidebar").inert = narrow.matches && !open;
    if (narrow.matches) (open ? byId("close-sidebar") : opener).focus({ preventScroll: true });
  };
  opener.onclick = () => setOpen(true);
  byId("close-sidebar").onclick = byId("scrim").onclick = () => setOpen(false);
  byId("sidebar").addEventListener("keydown", (event) => event.key === "Escape" && setOpen(false));
  const adapt = () => {
    document.body.classList.remove("sidebar-open");
    byId("sidebar").inert = narrow.matches;
  };
  narrow.addEventListener("change", adapt);
  adapt();

  return {
    close: () => document.body.classList.contains("sidebar-open") && setOpen(false),
    /** @param {Conversation[]} conversations the newest first @param {string} current id */
    show(conversations, current) {
      const groups = Map.groupBy(conversations, ({ updated }) => ageOf(updated));
      const parts = [...groups].map(([age, members]) => {
        const items = members.map((conversation) => chatItem(conversation, conversation.id === current, actions));
        return h("section", {}, h("h2", {}, age), h("ul", {}, ...items));
      });
      byId("chat-list").replaceChildren(...parts);
    },
  };
}

/** @param {number} time */
function ageOf(time) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const days = (midnight - time) / 86_400_000;
  if (days <= 0) return "Today";
  if (days <= 1) return "Yesterday";
  return days <= 7 ? "This week" : "Earlier";
}

/**
 * @param {Conversation} conversation @param {boolean} current
 * @param {{ open: (id: string) => void, rename: (id: string, title: string) => void, remove: (id: string) => void }} actions
 */
function chatItem({ id, title }, current, actions) {
  const open = h(
    "button",
    {
      type: "button",
      class: "chat-open",
      title,
      "aria-current": current ? "page" : null,
      on: { click: () => actions.open(id) },
    },
    title,
  );
  const rename = () => {
    const field = h("input", { class: "chat-rename", value: title, "aria-label": "Title of the chat" });
    let over = false;
    const end = (/** @type {boolean} */ keep) => {
      if (over) return;
      over = true;
      actions.rename(id, (keep && field.value.trim()) || title);
    };
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape") event.stopPropagation();
      if (event.key === "Enter" || event.key === "Escape") end(event.key === "Enter");
    });
    field.addEventListener("blur", () => end(true));
    item.replaceChildren(field);
    field.select();
  };
  const item = h(
    "li",
    { class: current ? "chat current" : "chat" },
    open,
    iconButton("edit", `Rename “${title}”`, rename),
    iconButton("trash", `Delete “${title}”`, () => actions.remove(id)),
  );
  return item;
}
