/**
 * Copies a selection across messages that are not drawn. Messages come from the chat's records, as Markdown and as HTML.
 * Only those that the selection begins or ends in are copied as they are shown.
 */
import { markdownOf } from "./chats/transfer/write.js";
import { htmlOf, sanitized } from "./markdown.js";

/**
 * @typedef {import("./chats/database.js").Message} Message
 * @typedef {{ element?: HTMLElement, messages?: Message[] }} Covered a row
 * @typedef {{ text: string, html: string }} Copied
 */

/** @param {ClipboardEvent} event @param {Selection} selection @param {Covered[]} rows that it covers */
export function copyMessages(event, selection, rows) {
  if (!event.clipboardData) return;
  const copied = rows.map((row) => shownPart(row, selection) ?? recorded(row)).filter(({ text }) => text.trim());
  event.clipboardData.setData("text/plain", copied.map(({ text }) => text).join("\n\n"));
  event.clipboardData.setData("text/html", copied.map(({ html }) => html).join("\n"));
  event.preventDefault();
}

/** @param {Covered} row @returns {Copied} */
function recorded({ messages = [] }) {
  const text = messages.map(markdownOf).join("\n\n");
  return { text, html: htmlOf(text) };
}

/** What is selected of a row that the selection begins or ends in. @param {Covered} row @param {Selection} selection @returns {Copied | null} */
function shownPart({ element }, selection) {
  const whole = selection.getRangeAt(0);
  const begins = element?.contains(whole.startContainer);
  if (!element || (!begins && !element.contains(whole.endContainer))) return null;
  const part = document.createRange();
  part.selectNodeContents(element);
  if (begins) part.setStart(whole.startContainer, whole.startOffset);
  if (element.contains(whole.endContainer)) part.setEnd(whole.endContainer, whole.endOffset);
  const html = document.createElement("div");
  html.append(part.cloneContents());
  for (const button of html.querySelectorAll("button")) button.remove();
  return { text: textOf(part, selection), html: sanitized(html.innerHTML) };
}

/** A range's text with its line breaks, which only a selection tells. @param {Range} part @param {Selection} selection */
function textOf(part, selection) {
  const { anchorNode, anchorOffset, focusNode, focusOffset } = selection;
  selection.setBaseAndExtent(part.startContainer, part.startOffset, part.endContainer, part.endOffset);
  const text = selection.toString();
  if (anchorNode && focusNode) selection.setBaseAndExtent(anchorNode, anchorOffset, focusNode, focusOffset);
  return text;
}
