/** Signs the user in to an MCP server in a tab of its own, which signed-in.html ends. */
import { t } from "../../language/phrase.js";

/** The channel on which signed-in.html tells the page the address at which the user came back. */
export const RETURNED = "wisp.signed-in";

/** @returns {string} where authorization servers send the user back to */
export const redirectUrl = () => new URL("signed-in.html", document.baseURI).href;

/** Whether an address that a server gave may be opened: one of the web's, encrypted or on this machine. @param {URL} url */
export const isPage = ({ protocol, hostname }) =>
  protocol === "https:" || (protocol === "http:" && ["127.0.0.1", "localhost"].includes(hostname));

/** @param {URL} url of an authorization server @returns {Promise<string>} the address at which the user came back */
export function openSignIn(url) {
  const channel = new BroadcastChannel(RETURNED);
  const back = new Promise((resolve, reject) => {
    channel.onmessage = ({ data }) => {
      if (new URL(data).searchParams.get("state") === url.searchParams.get("state")) resolve(data);
    };
    // Its opener would be cut off anyway: the page is isolated from other origins.
    if (!isPage(url)) reject(new Error(`${t("The address to sign in at must start with https://.")}`));
    else if (!window.open(url, "_blank"))
      reject(new Error(`${t("The browser has blocked the tab to sign in. Connect again.")}`));
  });
  return back.finally(() => channel.close());
}
