/** Lends the page's engine to `build.py serve --api`, if the page was opened at its address with #bridge= and a ticket. */
import { Wisp } from "../wisp.js";

const STORED = "wisp.bridge"; // in this tab's session: the ticket of the next connection

/** Take the ticket of the next connection, if there is one, and remove it from the address: it is secret. */
export function takeTicket() {
  const given = /^#bridge=([\w-]+)$/.exec(location.hash)?.[1];
  if (given) {
    sessionStorage.setItem(STORED, given);
    history.replaceState(null, "", location.pathname + location.search); // remove the ticket from the address bar
  }
  return given ?? sessionStorage.getItem(STORED);
}

/** @param {string | null} ticket @param {(servers: import("../sdk/bridge.js").RelayedServer[]) => void} onRelay */
export function startBridge(ticket, onRelay) {
  if (!ticket) return;
  const url = new URL(`v1/bridge?ticket=${ticket}`, location.href.replace(/^http/, "ws"));
  Wisp.lend(url, { onTicket: (next) => sessionStorage.setItem(STORED, next), onRelay });
}
