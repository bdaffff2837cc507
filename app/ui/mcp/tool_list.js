/** The tools of an MCP server, each with a switch: a large server's tools may not fit into a small context. */
import { t } from "../../language/phrase.js";
import { h } from "../dom.js";
import { LongList } from "../long_list.js";
import { say } from "../texts.js";
import { isOffered } from "./servers.js";

/**
 * @typedef {import("./servers.js").Entry} Entry
 * @typedef {import("./servers.js").KnownTool} KnownTool
 */

export class ToolList {
  #entry;
  #servers;
  #summary = h("summary", {});
  #all;
  #rows;

  /** @param {Entry} entry @param {import("./servers.js").McpServers} servers */
  constructor(entry, servers) {
    const { name } = entry;
    this.#entry = entry;
    this.#servers = servers;
    this.#all = /** @type {HTMLInputElement} */ (
      h("input", { type: "checkbox", on: { change: () => this.#turn(this.#usable, this.#all.checked) } })
    );
    const list = h("ul", { "aria-label": t("Tools of {name}", { name }), tabIndex: 0 }); // it scrolls
    this.#rows = new LongList(list, list);
    this.element = h(
      "details",
      { class: "mcp-tools", id: `mcp-tools-${name}` },
      this.#summary,
      h("label", { class: "check" }, this.#all, h("span", {}, t("All tools"))),
      list,
    );
  }

  /** The tools that models can get. */
  get #usable() {
    return this.#entry.tools.filter(({ unusable }) => !unusable);
  }

  draw() {
    const { tools, off } = this.#entry;
    const offered = tools.filter((tool) => isOffered(this.#entry, tool)).length;
    const n = tools.length;
    const some = t("{part} of {whole} tools are on", { part: offered, whole: n });
    say(this.#summary, tools.some(({ own }) => off.includes(own)) ? some : t("{n} tools", { n }));
    this.#all.checked = offered === this.#usable.length;
    this.#all.indeterminate = offered > 0 && !this.#all.checked;
    this.#rows.show(
      tools.map((tool) => ({ key: tool.name, state: [tool, off.includes(tool.own)], draw: () => this.#item(tool) })),
    );
  }

  /** @param {KnownTool} tool */
  #item(tool) {
    const { name, unusable, description } = tool;
    const use = /** @type {HTMLInputElement} */ (
      h("input", {
        type: "checkbox",
        checked: isOffered(this.#entry, tool),
        disabled: !!unusable,
        on: { change: () => this.#turn([tool], use.checked) },
      })
    );
    const text = h("small", { dir: "auto" }, unusable ?? description);
    return h("li", {}, h("label", { class: "check" }, use, h("span", {}, h("code", {}, name), " ", text)));
  }

  /** @param {KnownTool[]} tools @param {boolean} on */
  #turn(tools, on) {
    const names = tools.map(({ own }) => own);
    void this.#servers.turnTools(this.#entry, names, on);
  }
}
