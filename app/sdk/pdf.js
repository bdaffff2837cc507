/** Reads PDF files for the engine, as the page reads documents: the reader is a bundle of its own, fetched with the first. */

/**
 * @param {{ bytes: Uint8Array<ArrayBuffer>, answer: MessagePort }} message gets {result}, the text, or {error}
 * @param {{ reader: string, worker: string }} assets URLs of app/retrieval/pdf.js and of pdf.js's worker
 */
export async function readPdf({ bytes, answer }, { reader, worker }) {
  const controller = new AbortController();
  answer.onmessage = () => controller.abort(); // nobody waits for it any more
  try {
    const { readPdf } = await import(/* @vite-ignore */ /* webpackIgnore: true */ reader);
    const { blocks } = await readPdf(bytes.buffer, worker, controller.signal);
    answer.postMessage({ result: textOf(blocks) });
  } catch (/** @type {any} */ error) {
    answer.postMessage({ error: String(error?.message ?? error) });
  }
}

/** Paragraphs, each heading once before its own. @param {import("../retrieval/split.js").Block[]} blocks */
export function textOf(blocks) {
  return blocks
    .flatMap(({ text, heading }, i) => (heading && heading !== blocks[i - 1]?.heading ? [heading, text] : [text]))
    .join("\n\n");
}
