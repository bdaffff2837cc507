/** Where an authorization server sends the user back to: tells the page the address, and closes the tab. */
import { RETURNED } from "./sign_in.js";

new BroadcastChannel(RETURNED).postMessage(location.href);
close();
