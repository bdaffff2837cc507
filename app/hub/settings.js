/** Where the hub is and the user's token for it, stored in this browser. The engine reads the same text (app/main.py). */
import { t } from "../language/phrase.js";
import { read, write } from "../text_store.js";

export const HUB = "https://huggingface.co";
const NAME = "hub";

/** @typedef {{ baseURL: string, token: string }} Settings `token`: empty if there is none */

/** @returns {Promise<Settings>} */
export const readHub = async () => settingsOf(await read(NAME).catch(() => undefined));

/** @param {string | undefined} text @returns {Settings} */
function settingsOf(text) {
  try {
    const { baseURL = HUB, token = "" } = JSON.parse(text ?? "{}");
    return { baseURL, token };
  } catch {
    return { baseURL: HUB, token: "" };
  }
}

/**
 * Changes the settings. A new address without a token forgets the old one, which is for the old address only.
 * @param {{ baseURL?: string, token?: string }} changes an empty `baseURL` is the public hub's @returns {Promise<Settings>}
 */
export async function changeHub({ baseURL, token }) {
  const before = settingsOf(await read(NAME)); // rejects where it cannot be read: the token would be lost
  const address = baseURL === undefined ? before.baseURL : checked(baseURL || HUB);
  const known = new URL(address).origin === new URL(before.baseURL).origin ? before.token : "";
  const after = { baseURL: address, token: (token ?? known).trim() };
  await write(NAME, JSON.stringify(after));
  return after;
}

/** @param {string} address @returns {string} without a slash at its end */
function checked(address) {
  const url = URL.canParse(address) ? new URL(address) : null;
  const here = url !== null && ["127.0.0.1", "localhost"].includes(url.hostname);
  if (!url || !(url.protocol === "https:" || (url.protocol === "http:" && here)) || url.search || url.hash)
    throw new TypeError(`${t("The address of a hub must start with https://.")}`);
  return url.href.replace(/\/+$/, "");
}
