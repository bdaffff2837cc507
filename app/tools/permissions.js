/** Which tools run without asking: in one chat, or always. A permission is for one tool of one source. */
import { isText, storedList } from "../storage/local_json.js";

/** @typedef {import("./registry.js").Offered} Offered */

const KEY = "wisp.tools.allowed";

/** @param {Offered} tool */
const keyOf = ({ source, name }) => `${source.id}/${name}`;

/** @returns {string[]} */
function always() {
  return storedList(KEY, isText);
}

/** Whether a tool runs without asking. @param {Offered} tool @param {{ allowed?: string[] }} chat */
export function isAllowed(tool, { allowed = [] }) {
  return allowed.includes(keyOf(tool)) || always().includes(keyOf(tool));
}

/** A chat's permissions with one more. @param {Offered} tool @param {{ allowed?: string[] }} chat */
export function allowedWith(tool, { allowed = [] }) {
  return { allowed: [...new Set([...allowed, keyOf(tool)])] };
}

/** Lets a tool run in every chat without asking. @param {Offered} tool */
export function allowAlways(tool) {
  localStorage.setItem(KEY, JSON.stringify([...new Set([...always(), keyOf(tool)])]));
}

/** Whether any tool runs in every chat without asking. */
export const hasPermissions = () => always().length > 0;

/** Asks again for every tool, in every chat that has no permission of its own. */
export const forgetPermissions = () => localStorage.removeItem(KEY);
