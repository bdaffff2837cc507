/** The column of chats: a drawer on a narrow screen. */
import { byId } from "./dom.js";

export function startSidebar() {
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
    /** Shows the search field, and goes to it. */
    search() {
      if (narrow.matches) setOpen(true);
      byId("chat-search").focus();
    },
  };
}
