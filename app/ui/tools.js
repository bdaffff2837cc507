/** The button beside the message field that chooses which tools the shown chat's answers may use. */
import { t } from "../language/phrase.js";
import { CODE, codeTools } from "../tools/code.js";
import { allowPackages, packagesAllowed } from "../tools/packages.js";
import { tools } from "../tools/registry.js";
import { forgetPermissions, hasPermissions } from "../tools/permissions.js";
import { openMenu } from "./chats/menu.js";
import { byId } from "./dom.js";
import { notify } from "./notices.js";
import { show } from "./texts.js";
import { offerModel } from "./web_mcp.js";

/**
 * @typedef {import("./chats/database.js").ChatInfo} ChatInfo
 */

/** The tools that a chat's answers may use. @param {ChatInfo} chat */
export const offeredIn = ({ tools: ids = [] }) => tools.of(ids);

/** @param {import("./chats/chat.js").Chat} chats */
export function startTools(chats) {
  tools.offer(codeTools());
  offerModel(chats.parts.engine);
  const button = byId("tools-button");
  const chat = () => chats.conversation.info;
  const change = (/** @type {Partial<ChatInfo>} */ change) => chats.change(chats.conversation.id, change);
  const isOn = (/** @type {string} */ id) => (chat().tools ?? []).includes(id);
  const toggle = (/** @type {import("../tools/registry.js").Source} */ source) => {
    const others = (chat().tools ?? []).filter((id) => id !== source.id);
    const on = !isOn(source.id);
    change({ tools: on ? [...others, source.id] : others, ...(!on && !others.length && { allowed: [] }) });
    if (!on) return;
    source.prepare?.().catch((/** @type {Error} */ error) => {
      notify({
        key: "tools",
        text: t("{name} is not ready.", { name: `${source.name}` }),
        more: error.message,
        kind: "error",
      });
    });
  };
  const display = () => {
    const names = tools.sources.filter(({ id }) => isOn(id)).map(({ name }) => `${name}`);
    button.hidden = !tools.sources.length;
    button.setAttribute("aria-pressed", String(names.length > 0));
    const title = names.length ? t("Tools: {names}", { names: names.join(", ") }) : t("Tools that answers may use");
    show(button, "title", title);
    show(button, "aria-label", title);
  };
  button.onclick = () => {
    const entries = tools.sources.map((source) => ({
      label: source.name,
      icon: isOn(source.id) ? "check" : "plus",
      run: () => toggle(source),
    }));
    const allowed = packagesAllowed();
    const packages = {
      label: allowed
        ? t("Python packages from PyPI: switching off deletes them")
        : t("Python packages from PyPI, asked before they are fetched"),
      icon: allowed ? "check" : "plus",
      run: () => allowPackages(!allowed),
    };
    if (isOn(CODE)) entries.push(packages);
    const forget = { label: t("Ask again before tools run"), icon: "again", run: forgetPermissions };
    openMenu(button, hasPermissions() ? [...entries, forget] : entries);
  };
  tools.onChange(display);
  display();
  return { show: display };
}
