/** Lends the page's engine to `build.py serve --api`, whose address for this ends with #bridge= and a ticket. */
import { Wisp } from "../wisp.js";

const KEPT = "wisp.bridge"; // of this tab alone: the ticket is good until the server stops

export function startBridge() {
  const given = /^#bridge=([\w-]+)$/.exec(location.hash)?.[1];
  if (given) {
    sessionStorage.setItem(KEPT, given);
    history.replaceState(null, "", location.pathname + location.search); // out of the address bar
  }
  const ticket = given ?? sessionStorage.getItem(KEPT);
  if (ticket) Wisp.lend(new URL(`v1/bridge?ticket=${ticket}`, location.href.replace(/^http/, "ws")));
}
