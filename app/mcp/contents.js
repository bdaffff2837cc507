/** What servers of the Model Context Protocol send, as text and messages for a model. */
import { LONGEST, ofServer } from "../sdk/distinct_names.js";

/**
 * @typedef {Record<string, any>} Json
 * @typedef {{ content?: Json[], structuredContent?: unknown }} Result of tools/call
 */

/**
 * A tool's name as chat requests accept it.
 * @param {string} name the server's @param {string} [server] goes before it, so that the tools of several servers differ
 */
export function toolName(name, server) {
  return (server ? ofServer(server, name) : name).replace(/[^A-Za-z0-9_-]/g, "_").slice(0, LONGEST);
}

/** The pictures and sounds of a tool's result, in base64. @param {Result} result @returns {import("../sdk/types.d.ts").McpMedium[]} */
export function resultMedia({ content = [] }) {
  const resources = content.map(({ type, resource }) => (type === "resource" && resource.blob ? resource : null));
  const media = content.filter(({ type }) => type === "image" || type === "audio");
  return [
    ...media.map(({ mimeType, data }) => ({ mimeType, data })),
    ...resources.flatMap((resource) => (resource ? [{ mimeType: resource.mimeType ?? "", data: resource.blob }] : [])),
  ];
}

/** The text of a tool's result. Media are named, not shown. @param {Result} result @returns {string} */
export function resultText({ content = [], structuredContent }) {
  const text = content.map(blockText).join("\n");
  return text || (structuredContent === undefined ? "" : JSON.stringify(structuredContent));
}

/** @param {Json} block @returns {string} */
function blockText(block) {
  if (block.type === "text") return block.text;
  if (block.type === "resource") return resourceText(block.resource);
  if (block.type === "resource_link") return `[${block.name}: ${block.uri}]`;
  return `[${block.type}: ${block.mimeType ?? "unknown"}]`;
}

/** @param {Json} resource @returns {string} */
const resourceText = ({ uri, text, mimeType }) => text ?? `[${uri}: ${mimeType ?? "binary"}]`;

/** The messages of a prompt, for a chat request. @param {Json[]} messages @returns {Json[]} */
export function chatMessages(messages) {
  return messages.map(({ role, content }) => {
    const blocks = Array.isArray(content) ? content : [content];
    if (blocks.every(({ type }) => type !== "image")) return { role, content: blocks.map(blockText).join("\n") };
    return { role, content: blocks.map(part) };
  });
}

/** @param {Json} block @returns {Json} */
function part(block) {
  if (block.type !== "image") return { type: "text", text: blockText(block) };
  return { type: "image_url", image_url: { url: `data:${block.mimeType};base64,${block.data}` } };
}
