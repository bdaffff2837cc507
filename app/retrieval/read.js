/** Reads plain text, Markdown and PDF files as blocks of text. Errors have messages for the user. */
import { t } from "../language/phrase.js";
import { withSignal } from "../sdk/with_signal.js";
import { markdownBlocks, textBlocks } from "./split.js";

/**
 * @typedef {import("./split.js").Block} Block
 * @typedef {{ blocks: Block[], pages?: number }} Content
 * @typedef {(data: ArrayBuffer, signal?: AbortSignal) => Promise<Content>} ReadPdf
 */

const MAX_BYTES = 64 << 20;
const MARKDOWN = /\.(md|markdown|mdown|mkd)$/i;
const TEXT =
  /\.(txt|text|rst|adoc|org|tex|csv|tsv|log|json|jsonl|ya?ml|toml|xml|html?|js|ts|py|rs|go|c|h|cpp|java|sh|css|sql)$/i;

/** Whether a file is a document, not a model. @param {File} file */
export function isDocument({ name, type }) {
  if (/\.gguf$/i.test(name)) return false;
  return MARKDOWN.test(name) || TEXT.test(name) || isPdf({ name, type }) || type.startsWith("text/");
}

/** @param {{ name: string, type: string }} file */
const isPdf = ({ name, type }) => /\.pdf$/i.test(name) || type === "application/pdf";

/**
 * @param {File} file @param {() => Promise<ReadPdf>} pdf loads the PDF reader @param {AbortSignal} [signal]
 * @returns {Promise<Content>}
 */
export async function read(file, pdf, signal) {
  if (file.size > MAX_BYTES) {
    const size = MAX_BYTES >> 20;
    throw new Error(`${t("It is larger than {size} MB; split it into smaller files.", { size })}`);
  }
  const data = await withSignal(file.arrayBuffer(), signal);
  const content = isPdf(file)
    ? await (
        await withSignal(pdf(), signal)
      )(data, signal)
    : { blocks: blocksOf(file.name, decoded(data)) };
  if (!content.blocks.length) {
    const images = t("It has no text, only images. Run it through text recognition (OCR) first.");
    throw new Error(`${isPdf(file) ? images : t("It is empty.")}`);
  }
  return content;
}

/** @param {string} name @param {string} text */
function blocksOf(name, text) {
  return MARKDOWN.test(name) ? markdownBlocks(text) : textBlocks(text);
}

/** @param {ArrayBuffer} data @returns {string} with LF line ends */
function decoded(data) {
  const bytes = new Uint8Array(data);
  const wide =
    bytes[0] === 0xff && bytes[1] === 0xfe ? "utf-16le" : bytes[0] === 0xfe && bytes[1] === 0xff ? "utf-16be" : "";
  if (!wide && bytes.includes(0)) throw new Error(`${t("It is not a text file.")}`);
  let text;
  try {
    text = new TextDecoder(wide || "utf-8", { fatal: true }).decode(data);
  } catch {
    text = new TextDecoder("windows-1252").decode(data); // the encoding of most old text files
  }
  return text.replace(/\r\n?/g, "\n");
}
