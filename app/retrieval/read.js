/** A file's text in blocks: plain text, Markdown, or PDF. What cannot be read rejects with a message for the person. */
import { markdownBlocks, textBlocks } from "./split.js";

/**
 * @typedef {import("./split.js").Block} Block
 * @typedef {{ blocks: Block[], pages?: number }} Content
 * @typedef {(data: ArrayBuffer) => Promise<Content>} ReadPdf
 */

const MOST_BYTES = 64 << 20;
const MARKDOWN = /\.(md|markdown|mdown|mkd)$/i;
const TEXT =
  /\.(txt|text|rst|adoc|org|tex|csv|tsv|log|json|jsonl|ya?ml|toml|xml|html?|js|ts|py|rs|go|c|h|cpp|java|sh|css|sql)$/i;

/** Whether a file is a document rather than a model. @param {File} file */
export function isDocument({ name, type }) {
  if (/\.gguf$/i.test(name)) return false;
  return MARKDOWN.test(name) || TEXT.test(name) || isPdf({ name, type }) || type.startsWith("text/");
}

/** @param {{ name: string, type: string }} file */
const isPdf = ({ name, type }) => /\.pdf$/i.test(name) || type === "application/pdf";

/** @param {File} file @param {() => Promise<ReadPdf>} pdf loads what reads PDF @returns {Promise<Content>} */
export async function read(file, pdf) {
  if (file.size > MOST_BYTES) throw new Error(`It is larger than ${MOST_BYTES >> 20} MB; split it into smaller files.`);
  const data = await file.arrayBuffer();
  const content = isPdf(file) ? await (await pdf())(data) : { blocks: blocksOf(file.name, decoded(data)) };
  if (!content.blocks.length) {
    throw new Error(
      isPdf(file)
        ? "It has no text, only pictures of it. Run it through text recognition (OCR) first."
        : "It is empty.",
    );
  }
  return content;
}

/** @param {string} name @param {string} text */
function blocksOf(name, text) {
  return MARKDOWN.test(name) ? markdownBlocks(text) : textBlocks(text);
}

/** @param {ArrayBuffer} data @returns {string} with line feeds alone */
function decoded(data) {
  const bytes = new Uint8Array(data);
  const wide =
    bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le" : bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : "";
  if (!wide && bytes.includes(0)) throw new Error("It is no text.");
  let text;
  try {
    text = new TextDecoder(wide || "utf-8", { fatal: true }).decode(data);
  } catch {
    text = new TextDecoder("windows-1252").decode(data); // what old text files are mostly written in
  }
  return text.replace(/\r\n?/g, "\n");
}
