/**
 * What models write besides Markdown: `<br>`, as in the cells of tables, `<sub>` and `<sup>`, and lists of tasks. Other HTML
 * stays text. A plugin of markdown-it; every rule takes linear time.
 */

/**
 * @typedef {import("markdown-it").MarkdownIt} MarkdownIt
 * @typedef {import("markdown-it").StateInline} StateInline
 * @typedef {import("markdown-it").StateCore} StateCore
 */

const BREAK = /<br *\/?>/iy;
const RAISED = /<(su[bp])>([^<>\n]{1,100})<\/\1>/iy; // its content is text
const TASK = /^\[([ xX])\](?= )/;
const OPEN_TASK = "☐";
const DONE_TASK = "☑";

/** @param {MarkdownIt} markdown */
export function extras(markdown) {
  markdown.inline.ruler.before("autolink", "allowed_html", inlineRule);
  markdown.core.ruler.after("inline", "tasks", tasks);
}

/** @param {StateInline} state @param {boolean} silent */
function inlineRule(state, silent) {
  const found = at(BREAK, state) ?? at(RAISED, state);
  if (!found) return false;
  const [whole, tag, text] = found;
  if (!silent && !tag) state.push("hardbreak", "br", 0);
  if (!silent && tag) {
    const name = tag.toLowerCase();
    state.push(`${name}_open`, name, 1);
    state.push("text", "", 0).content = text;
    state.push(`${name}_close`, name, -1);
  }
  state.pos += whole.length;
  return true;
}

/** @param {RegExp} pattern a sticky one @param {StateInline} state */
function at(pattern, { src, pos }) {
  pattern.lastIndex = pos;
  return pattern.exec(src);
}

/** Shows the box of a task, which begins an item of a list. @param {StateCore} state */
function tasks({ tokens }) {
  for (let i = 2; i < tokens.length; i++) {
    const first = tokens[i].type === "inline" && tokens[i - 2].type === "list_item_open" && tokens[i].children?.[0];
    if (first && first.type === "text")
      first.content = first.content.replace(TASK, (_, mark) => (mark === " " ? OPEN_TASK : DONE_TASK));
  }
}

/** Marks the items of a list that are tasks, whose box stands for their bullet. @param {DocumentFragment} content */
export function markTasks(content) {
  for (const item of content.querySelectorAll("li"))
    if (/^\s*[☐☑] /.test(item.textContent ?? "")) item.classList.add("task");
}
